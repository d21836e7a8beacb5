"""Decoded messages become the rows of the raw table and of the quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.landing.batch import Messages
from headrace.landing.decode import Decoder
from headrace.landing.decode.arrays import EARLIEST, LATEST, MICROSECONDS
from headrace.spec.pipeline import EventTime, Stream

_T = TypeVar("_T")
_UTC = pa.timestamp("us", "UTC")


def split_bad_rows(
    messages: Messages, *, decoder: Decoder, stream: Stream, schema: pa.Schema, checkpoint_id: int
) -> tuple[pa.Table, Mapping[int, str], Mapping[str, int]]:
    """Gives back the good rows as the raw table has them, the bad messages' reasons, and the unnamed fields' counts."""
    too_large = _too_large(messages, stream.max_record_bytes)
    values = (
        [None if index in too_large else value for index, value in enumerate(messages.values)] if too_large else messages.values
    )
    decoded = decoder.decode(values)
    columns, rows, bad = dict(decoded.columns), decoded.rows, {**decoded.bad, **too_large}
    if stream.event_time and rows:
        columns, rows, late = _with_event_time(columns, rows, stream.event_time)
        bad.update(late)
    if not rows:
        return schema.empty_table(), bad, decoded.extras
    columns |= _coordinates(messages, rows, checkpoint_id=checkpoint_id)
    # A column that the schema no longer names stays in the table.
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in schema]
    return pa.table(arrays, schema=schema), bad, decoded.extras


def quarantine_rows(
    messages: Messages, bad: Mapping[int, str], *, label: str, schema: pa.Schema, checkpoint_id: int
) -> pa.Table:
    """Gives back the bad messages as rows of `metadata.quarantine`, with their original bytes."""
    rows = sorted(bad)
    return pa.table(
        {
            "stream": pa.repeat(label, len(rows)).cast(pa.large_string()),
            "topic": pa.repeat(messages.topic, len(rows)).cast(pa.large_string()),
            "partition": pa.array([messages.partitions[row] for row in rows], pa.int32()),
            "offset": pa.array([messages.offsets[row] for row in rows], pa.int64()),
            "timestamp": _moments([messages.timestamps[row] for row in rows]),
            "reason": pa.array([bad[row] for row in rows], pa.large_string()),
            "original_bytes": pa.array([messages.values[row] for row in rows], pa.large_binary()),
            "checkpoint_id": pa.repeat(pa.scalar(checkpoint_id, pa.int64()), len(rows)),
        },
        schema=schema,
    )


def _too_large(messages: Messages, limit: int) -> dict[int, str]:
    if messages.bytes <= limit:
        return {}
    return {
        index: f"too large: {len(value)} bytes, and max_record_bytes is {limit}"
        for index, value in enumerate(messages.values)
        if value is not None and len(value) > limit
    }


def _coordinates(messages: Messages, rows: Sequence[int], *, checkpoint_id: int) -> dict[str, pa.Array]:
    count = len(rows)
    return {
        "kafka_topic": pa.repeat(pa.scalar(messages.topic, pa.large_string()), count),
        "kafka_partition": pa.array(_pick(messages.partitions, rows), pa.int32()),
        "kafka_offset": pa.array(_pick(messages.offsets, rows), pa.int64()),
        "kafka_timestamp": _moments(_pick(messages.timestamps, rows)),
        "checkpoint_id": pa.repeat(pa.scalar(checkpoint_id, pa.int64()), count),
    }


def _with_event_time(
    columns: dict[str, pa.Array], rows: list[int], event_time: EventTime
) -> tuple[dict[str, pa.Array], list[int], dict[int, str]]:
    """Adds the event time; rows whose number is no time between the years 1 and 9999 are bad."""
    factor = MICROSECONDS[event_time.unit]
    source = columns[event_time.source].cast(pa.int64())
    fits = pc.fill_null(
        pc.and_(pc.greater_equal(source, EARLIEST // factor + 1), pc.less_equal(source, LATEST // factor)), True
    )
    late: dict[int, str] = {}
    if not pc.all(fits).as_py():
        keep = fits.to_pylist()
        refused = compress(rows, (not fit for fit in keep))
        late = dict.fromkeys(refused, f"bad timestamp: {event_time.source} is outside the years 1 to 9999")
        rows = list(compress(rows, keep))
        columns = {name: array.filter(fits) for name, array in columns.items()}
        source = source.filter(fits)
    return {**columns, event_time.column: pc.multiply(source, factor).cast(_UTC)}, rows, late


def _moments(milliseconds: Sequence[int]) -> pa.Array:
    """Gives back Kafka's timestamps; null where a message has none, or a number that is no time before the year 10000."""
    array = pa.array(milliseconds, pa.int64())
    bounds = pc.min_max(array)
    if bounds["min"].is_valid and (bounds["min"].as_py() < 0 or bounds["max"].as_py() > LATEST // 1_000):
        array = pa.array([value if 0 <= value <= LATEST // 1_000 else None for value in milliseconds], pa.int64())
    return pc.multiply(array, 1_000).cast(_UTC)


def _pick(values: list[_T], rows: Sequence[int]) -> list[_T]:
    return values if len(values) == len(rows) else [values[row] for row in rows]
