"""Turn decoded messages into rows of the raw table and of the quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

import pyarrow as pa
import pyarrow.compute as pc

from headrace.faults import reach_messages
from headrace.kafka.records import Messages, Records
from headrace.landing.decode import Decoded, Decoder
from headrace.landing.decode.arrays import EARLIEST, LATEST, MICROSECONDS
from headrace.landing.decode.extra import names_in_extra
from headrace.spec.model.columns import EXTRA
from headrace.spec.model.pipeline import EventTime, Stream

_UTC = pa.timestamp("us", "UTC")
_LAST_MILLISECOND = LATEST // 1_000


def rows_of_block(
    records: Records, *, decoder: Decoder, stream: Stream, schema: pa.Schema, checkpoint_id: int
) -> pa.Table | None:
    """Return the records as rows of the raw table, or None unless all are good and their format decodes as a block."""
    if records.largest > stream.max_record_bytes:
        return None
    block = decoder.decode_block(records.batches)
    if block is None:
        return None
    columns = dict(block.columns)
    if stream.event_time:
        columns, fits = _with_event_time(columns, stream.event_time)
        if fits is not None:
            return None
    return _table(columns, block.places, records.topic, schema=schema, checkpoint_id=checkpoint_id)


def split_bad_rows(
    messages: Messages,
    *,
    decoder: Decoder,
    stream: Stream,
    schema: pa.Schema,
    checkpoint_id: int,
    known_bad: Mapping[int, str] | None = None,
) -> tuple[pa.Table, Decoded]:
    """Return the good messages as rows of the raw table, and the outcome of all messages without their columns.

    `known_bad` has the reasons of messages that are refused without decoding them.
    """
    unread = {**_too_large(messages.values, stream.max_record_bytes), **(known_bad or {})}
    values = [b"" if index in unread else value for index, value in enumerate(messages.values)] if unread else messages.values
    reach_messages(values)
    decoded = decoder.decode(values)
    columns, rows, bad = dict(decoded.columns), decoded.rows, {**decoded.bad, **unread}
    if stream.event_time and rows:
        columns, fits = _with_event_time(columns, stream.event_time)
        if fits is not None:
            refused = compress(rows, pc.invert(fits).to_pylist())
            bad.update(dict.fromkeys(refused, f"bad timestamp: {stream.event_time.source} is outside the years 1 to 9999"))
            rows = list(compress(rows, fits.to_pylist()))
    if len(rows) + len(bad) != len(messages):  # a bug that would lose a message or land it twice
        raise ValueError(f"{len(messages)} messages became {len(rows)} rows and {len(bad)} refusals")
    if not rows:
        return schema.empty_table(), replace(decoded, columns={}, rows=rows, bad=bad, extras={})
    extras = _count_extras(columns[EXTRA.name]) if decoded.extras and bad else decoded.extras
    rest = replace(decoded, columns={}, rows=rows, bad=bad, extras=extras)
    places = messages.places if len(rows) == len(messages) else messages.places.take(pa.array(rows, pa.int64()))
    return _table(columns, places, messages.topic, schema=schema, checkpoint_id=checkpoint_id), rest


def _count_extras(column: pa.Array) -> Mapping[str, int]:
    """Return how many rows hold each unnamed field. Counts again, because messages may be refused after the first count."""
    return Counter(name for text in column.to_pylist() if text is not None for name in names_in_extra(text))


def quarantine_rows(
    messages: Messages, bad: Mapping[int, str], *, label: str, schema: pa.Schema, checkpoint_id: int
) -> pa.Table:
    """Return the bad messages as rows of `metadata.quarantine`, with their original bytes."""
    rows = sorted(bad)
    places = messages.places.take(pa.array(rows, pa.int64()))
    return pa.table(
        {
            "stream": pa.repeat(label, len(rows)).cast(pa.large_string()),
            "topic": pa.repeat(messages.topic, len(rows)).cast(pa.large_string()),
            "partition": places["partition"],
            "offset": places["offset"],
            "timestamp": _moments(places["timestamp"]),
            "reason": pa.array([_as_utf8(bad[row]) for row in rows], pa.large_string()),
            "original_bytes": pa.array([messages.values[row] for row in rows], pa.large_binary()),
            "checkpoint_id": pa.repeat(pa.scalar(checkpoint_id, pa.int64()), len(rows)),
        },
        schema=schema,
    )


def _as_utf8(text: str) -> str:
    """Return a text that Arrow can hold: an unpaired surrogate, which JSON allows, is replaced by its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _too_large(values: Sequence[bytes | None], limit: int) -> dict[int, str]:
    return {
        index: f"too large: {len(value)} bytes, and max_record_bytes is {limit}"
        for index, value in enumerate(values)
        if value is not None and len(value) > limit
    }


def _table(columns: Mapping[str, pa.Array], places: pa.Table, topic: str, *, schema: pa.Schema, checkpoint_id: int) -> pa.Table:
    """Return rows with their coordinates. Columns that the pipeline no longer names are null."""
    count = places.num_rows
    all_columns = {
        **columns,
        "kafka_topic": pa.repeat(pa.scalar(topic, pa.large_string()), count),
        "kafka_partition": places["partition"],
        "kafka_offset": places["offset"],
        "kafka_timestamp": _moments(places["timestamp"]),
        "checkpoint_id": pa.repeat(pa.scalar(checkpoint_id, pa.int64()), count),
    }
    return pa.table([all_columns.get(field.name, pa.nulls(count, field.type)) for field in schema], schema=schema)


def _with_event_time(
    columns: Mapping[str, pa.Array], event_time: EventTime
) -> tuple[dict[str, pa.Array], pa.BooleanArray | None]:
    """Return the columns with the event time, without the rows whose time is outside the years 1 to 9999.

    If rows were removed, also return the mask of the rows that stay.
    """
    factor = MICROSECONDS[event_time.unit]
    source = columns[event_time.source].cast(pa.int64())
    fits = None
    bounds = pc.min_max(source)
    if bounds["min"].is_valid and not EARLIEST // factor < bounds["min"].as_py() <= bounds["max"].as_py() <= LATEST // factor:
        fits = pc.fill_null(pc.and_(pc.greater(source, EARLIEST // factor), pc.less_equal(source, LATEST // factor)), True)
        columns = {name: array.filter(fits) for name, array in columns.items()}
        source = source.filter(fits)
    return {**columns, event_time.column: pc.multiply(source, factor).cast(_UTC)}, fits


def _moments(milliseconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return Kafka's timestamps; null where a message has none, or one outside the years 1970 to 9999."""
    bounds = pc.min_max(milliseconds)
    if bounds["min"].is_valid and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() <= _LAST_MILLISECOND:
        usable = pc.and_(pc.greater_equal(milliseconds, 0), pc.less_equal(milliseconds, _LAST_MILLISECOND))
        milliseconds = pc.if_else(usable, milliseconds, pa.scalar(None, pa.int64()))
    return pc.multiply(milliseconds, 1_000).cast(_UTC)
