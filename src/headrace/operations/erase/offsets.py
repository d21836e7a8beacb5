"""Which topic the offset of a row belongs to.

A stream whose topic was replaced has rows of several topics, with the same partitions and offsets. The checkpoint of a row
tells which topic it is from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812

from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.landing import offsets_label, read_ledger
from headrace.spec.model.pipeline import Pipeline, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column


def stream_offsets_label(catalog: Catalog, pipeline: Pipeline, stream: Stream) -> Column:
    """Return the label of the topic that a row of a raw table is from, as `offsets_label` names it."""
    label = f"{pipeline.name}.{stream.name}"
    return _by_checkpoint(F.lit(label), label, _topic_starts(catalog, stream))


def quarantine_offsets_label(catalog: Catalog, pipeline: Pipeline) -> Column:
    """Return the label of the topic that a row of the quarantine is from; rows of layer tables keep their label."""
    found = F.col("stream")
    for stream in pipeline.streams:
        label = f"{pipeline.name}.{stream.name}"
        starts = _topic_starts(catalog, stream)
        if starts:
            found = F.when(F.col("stream") == label, _by_checkpoint(F.lit(label), label, starts)).otherwise(found)
    return found


def _by_checkpoint(first: Column, label: str, starts: tuple[int, ...]) -> Column:
    found = first
    for start in starts:  # ascending: the last start that a row has reached wins
        found = F.when(F.col("checkpoint_id") >= start, F.lit(offsets_label(label, start))).otherwise(found)
    return found


def _topic_starts(catalog: Catalog, stream: Stream) -> tuple[int, ...]:
    table = load_table(catalog, stream.table)
    return read_ledger(table).topic_starts if table else ()
