"""Turn records into messages with value, partition, offset and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kafka.records.batches import RecordBatch, Records
from headrace.kafka.records.frames import Frames
from headrace.kafka.records.walk import walk_records

_VALUES = Frames()


@dataclass(frozen=True)
class Messages:
    """Messages of one topic: `values[i]` is the message at row `i` of `places` (partition, offset, timestamp)."""

    topic: str
    values: list[bytes | None]
    places: pa.Table

    def __len__(self) -> int:
        return len(self.values)


def split_messages(records: Records, *, rows: int) -> Iterator[Messages]:
    """Yield the records' messages, `rows` at a time."""
    frame, places = _read(records.batches)
    values: list[bytes | None] = frame["kafka_value"].to_list()
    for at in range(0, len(values), rows):
        yield Messages(records.topic, values[at : at + rows], places.slice(at, rows))


def place(frame: pl.DataFrame, batches: Sequence[RecordBatch]) -> tuple[pl.DataFrame, pa.Table]:
    """Return the wanted rows of the batches, and their coordinates. Offsets and times in `frame` are relative to batches."""
    ends = pa.array(accumulate(batch.count for batch in batches), pa.int32())

    def spread(values: Iterable[int], kind: pa.DataType) -> pa.Array:
        """Return each batch's value once per record."""
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind)))

    times = frame["kafka_timestamp"].to_arrow()
    if any(batch.one_time for batch in batches):
        times = pc.multiply(times, spread((int(not batch.one_time) for batch in batches), pa.int64()))
    offsets = pc.add(spread((batch.base_offset for batch in batches), pa.int64()), frame["kafka_offset"].to_arrow())
    places = pa.table(
        {
            "partition": spread((batch.partition for batch in batches), pa.int32()),
            "offset": offsets,
            "timestamp": pc.add(spread((batch.timestamp for batch in batches), pa.int64()), times),
        }
    )
    if not any(batch.is_cut for batch in batches):
        return frame, places
    is_wanted = pc.and_(
        pc.greater_equal(offsets, spread((batch.start for batch in batches), pa.int64())),
        pc.less(offsets, spread((batch.end for batch in batches), pa.int64())),
    )
    return frame.filter(pl.Series(is_wanted)), places.filter(is_wanted)


def _read(batches: Sequence[RecordBatch]) -> tuple[pl.DataFrame, pa.Table]:
    """Read all batches in one pass, else one pass per batch, else record by record."""
    framed = _VALUES.read(batches)
    if framed is not None:
        return place(framed.frame, batches)
    if len(batches) > 1:
        frames, places = zip(*(_read([batch]) for batch in batches), strict=True)
        return pl.concat([frame.select("kafka_value") for frame in frames]), pa.concat_tables(places)
    (batch,) = batches
    records = list(walk_records(batch.records, batch.count))
    frame = pl.DataFrame(
        {
            "kafka_value": pl.Series([record.value for record in records], dtype=pl.Binary),
            "kafka_offset": pl.Series([record.offset for record in records], dtype=pl.Int64),
            "kafka_timestamp": pl.Series([record.timestamp for record in records], dtype=pl.Int64),
        }
    )
    return place(frame, batches)
