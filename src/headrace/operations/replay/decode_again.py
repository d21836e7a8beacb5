"""Decode quarantined messages again, from their original bytes or from bytes that were edited by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec

from headrace.iceberg.files.storage import Storage
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.kafka.records import Messages
from headrace.landing.decode import CHUNK_ROWS, Decoder, GrowthError, decoder_of
from headrace.landing.isolation import split_isolated
from headrace.landing.rows import quarantine_rows
from headrace.operations.replay.target import Coordinates, Staged, Target, coordinates, grow_target, read_staged


def decode_again(
    catalog: Catalog,
    target: Target,
    rows: pa.Table,
    *,
    edited: Mapping[Coordinates, bytes] | None = None,
    registry_url: str = "",
) -> tuple[Target, Staged]:
    """Decode refused messages again. Return the target, whose table may have new columns, and the result.

    `edited` has edited bytes for some messages. Files are written to the scratch folder; no table refers to them.
    """
    while True:
        try:
            return target, _decode(target, rows, edited or {}, registry_url)
        except GrowthError as growth:
            target = grow_target(catalog, target, growth.columns)


def _decode(target: Target, rows: pa.Table, edited: Mapping[Coordinates, bytes], registry_url: str) -> Staged:
    form = TableFormat(target.table.schema(), target.table.spec())
    bad_form = TableFormat(target.quarantine.schema(), PartitionSpec())
    decoder = decoder_of(target.stream, form.arrow_schema, registry_url=registry_url)
    storage = Storage.of(target.table.io.properties)
    good = TableFiles(form, folder=f"{target.scratch}/rows", name="again", storage=storage)
    bad = TableFiles(bad_form, folder=f"{target.scratch}/refused", name="again", storage=storage)
    try:
        for messages in _messages(rows, edited, most=CHUNK_ROWS[target.stream.format]):
            _take(target, messages, decoder, good, bad, form=form, bad_form=bad_form)
    except BaseException:
        good.abort()
        bad.abort()
        raise
    return read_staged(target, good=good.close(), bad=bad.close())


def _take(
    target: Target,
    messages: Messages,
    decoder: Decoder,
    good: TableFiles,
    bad: TableFiles,
    *,
    form: TableFormat,
    bad_form: TableFormat,
) -> None:
    checkpoint_id = target.ledger.checkpoint_id
    table, decoded, _ = split_isolated(messages, decoder=decoder, stream=target.stream, form=form, checkpoint_id=checkpoint_id)
    if table.num_rows:
        good.write(table)
    if decoded.bad:
        refused = quarantine_rows(
            messages, decoded.bad, label=target.label, schema=bad_form.arrow_schema, checkpoint_id=checkpoint_id
        )
        bad.write(refused)


def _messages(rows: pa.Table, edited: Mapping[Coordinates, bytes], *, most: int) -> Iterator[Messages]:
    """Yield refused rows as messages, grouped by topic."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    for (topic,), part in frame.group_by("topic", maintain_order=True):
        for chunk in part.iter_slices(most):
            part_rows = chunk.to_arrow()
            original: list[bytes | None] = chunk["original_bytes"].to_list()
            values = [edited.get(at, value) for at, value in zip(coordinates(part_rows), original, strict=True)]
            places = pa.table(
                {
                    "partition": part_rows["partition"].cast(pa.int32()),
                    "offset": part_rows["offset"].cast(pa.int64()),
                    "timestamp": chunk["timestamp"].dt.epoch("ms").to_arrow(),
                }
            )
            yield Messages(str(topic), values, places)
