"""Label the topic that a row's offset belongs to.

A stream whose topic was replaced has rows of several topics with the same partitions and offsets. The checkpoint of a row tells
them apart.
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
    """Return the `offsets_label` of the topic of a raw table's row."""
    label = f"{pipeline.name}.{stream.name}"
    return _by_checkpoint(F.lit(label), label, _topic_starts(catalog, stream))


def quarantine_offsets_label(catalog: Catalog, pipeline: Pipeline) -> Column:
    """Return the `offsets_label` of the topic of a quarantined row. Rows of layer tables keep their label."""
    result = F.col("stream")
    for stream in pipeline.streams:
        label = f"{pipeline.name}.{stream.name}"
        starts = _topic_starts(catalog, stream)
        if starts:
            result = F.when(F.col("stream") == label, _by_checkpoint(F.lit(label), label, starts)).otherwise(result)
    return result


def _by_checkpoint(first: Column, label: str, starts: tuple[int, ...]) -> Column:
    result = first
    for start in starts:  # ascending: the last start at or before the row's checkpoint wins
        result = F.when(F.col("checkpoint_id") >= start, F.lit(offsets_label(label, start))).otherwise(result)
    return result


def _topic_starts(catalog: Catalog, stream: Stream) -> tuple[int, ...]:
    table = load_table(catalog, stream.table)
    return read_ledger(table).topic_starts if table else ()
