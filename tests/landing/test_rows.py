"""Turn messages into rows of the raw table and of the quarantine."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.iceberg.metadata.quarantine import QUARANTINE_COLUMNS
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.landing.decode import Decoded
from headrace.landing.rows import quarantine_rows, split_bad_rows
from headrace.spec.model.pipeline import EventTime, Stream
from tests.landing.streams import avro_stream, decoder_for, json_stream, messages_of, schema_of
from tests.landing.test_avro_decoder import LINEAGE, encode

UTC = timezone.utc
MOMENT = datetime(2026, 2, 24, 19, 59, 58, 501_000, tzinfo=UTC)


def split(
    stream: Stream, values: list[bytes | None], *, timestamps: list[int] | None = None, schema: pa.Schema | None = None
) -> tuple[pa.Table, dict[int, str]]:
    table, decoded = split_bad_rows(
        messages_of(values, timestamps=timestamps),
        decoder=decoder_for(stream),
        stream=stream,
        schema=schema or schema_of(stream),
        checkpoint_id=7,
    )
    return table, dict(decoded.bad)


def test_split_bad_rows_keeps_coordinates() -> None:
    stream = json_stream("v INT")
    table, bad = split(stream, [b'{"v":1}', b"{", b'{"v":3}'])
    assert table.schema == schema_of(stream)
    coordinates = {"_extra": None, "kafka_topic": "things", "kafka_partition": 0, "kafka_timestamp": MOMENT, "checkpoint_id": 7}
    assert table.to_pylist() == [{"v": 1, "kafka_offset": 0, **coordinates}, {"v": 3, "kafka_offset": 2, **coordinates}]
    assert list(bad) == [1]


def test_quarantine_rows_keep_original_bytes() -> None:
    values = [b'{"v":1}', b"\xff\x00{", None, b""]
    schema = schema_to_pyarrow(iceberg_schema(QUARANTINE_COLUMNS))
    table = quarantine_rows(messages_of(values), {1: "r1", 2: "r2", 3: "r3"}, label="p.things", schema=schema, checkpoint_id=7)
    assert table.select(["stream", "topic", "partition", "offset", "reason", "original_bytes"]).to_pylist() == [
        {
            "stream": "p.things",
            "topic": "things",
            "partition": 0,
            "offset": at,
            "reason": f"r{at}",
            "original_bytes": values[at],
        }
        for at in (1, 2, 3)
    ]
    assert set(table["timestamp"].to_pylist()) == {MOMENT}
    assert set(table["checkpoint_id"].to_pylist()) == {7}


@pytest.mark.parametrize("rows", [[0], [0, 1, 1]])
def test_split_bad_rows_raises_if_a_decoder_loses_or_doubles_a_message(rows: list[int]) -> None:
    class Careless:
        def decode(self, values: list[bytes | None]) -> Decoded:
            return Decoded({"v": pa.array([1] * len(rows), pa.int32())}, rows, {})

        def decode_block(self, batches: object) -> None: ...

    stream = json_stream("v INT")
    with pytest.raises(ValueError, match="2 messages became"):
        split_bad_rows(messages_of([b"a", b"b"]), decoder=Careless(), stream=stream, schema=schema_of(stream), checkpoint_id=7)


def test_quarantine_rows_escape_unpaired_surrogates_in_reasons() -> None:
    """A registered schema can have such a name; the message would block its stream for ever."""
    schema = schema_to_pyarrow(iceberg_schema(QUARANTINE_COLUMNS))
    table = quarantine_rows(messages_of([b"x"]), {0: "\ud800 é"}, label="p.things", schema=schema, checkpoint_id=7)
    assert table["reason"].to_pylist() == ["\\ud800 é"]


def test_split_bad_rows_refuses_a_message_past_the_limit() -> None:
    large = b'{"v":1' + b" " * 5_000_000 + b"}"
    table, bad = split(json_stream("v INT"), [b'{"v":1}', large, b'{"v":2}'])
    assert table["v"].to_pylist() == [1, 2]
    assert bad == {1: f"too large: {len(large)} bytes, and max_record_bytes is 4194304"}
    table, bad = split(json_stream("v INT", max_record_bytes=6_000_000), [large])
    assert (table["v"].to_pylist(), bad) == ([1], {})


@pytest.mark.parametrize(
    ("unit", "number", "moment"),
    [
        ("ms", 1_771_963_198_501, MOMENT),
        ("s", 1_771_963_198, MOMENT.replace(microsecond=0)),
        ("us", 1_771_963_198_501_000, MOMENT),
        ("ms", -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_split_bad_rows_computes_the_event_time(unit: Any, number: int, moment: datetime) -> None:
    stream = avro_stream(LINEAGE, event_time=EventTime("event_time", "timestamp", unit))
    table, bad = split(stream, [encode(LINEAGE, {"uuid": "u", "timestamp": number})])
    assert (table["event_time"].to_pylist(), table["timestamp"].to_pylist(), bad) == ([moment], [number], {})


@pytest.mark.parametrize("number", [2**62, -(2**62), 253_402_300_800_000, -62_135_596_800_001, 2**63 - 1, -(2**63)])
def test_split_bad_rows_refuses_an_invalid_event_time(number: int) -> None:
    stream = avro_stream(LINEAGE, event_time=EventTime("event_time", "timestamp", "ms"))
    good = encode(LINEAGE, {"uuid": "u", "timestamp": 1})
    table, bad = split(stream, [good, encode(LINEAGE, {"uuid": "v", "timestamp": number}), good])
    assert table["kafka_offset"].to_pylist() == [0, 2]
    assert bad[1].startswith("bad timestamp: timestamp")


@pytest.mark.parametrize("timestamp", [-1, 2**62, 1_771_963_198_501_000_000])
def test_split_bad_rows_leaves_an_invalid_timestamp_null(timestamp: int) -> None:
    """Kafka accepts any number from a producer; microseconds instead of milliseconds are the year 58,000."""
    table, bad = split(json_stream("v INT"), [b'{"v":1}', b'{"v":2}'], timestamps=[1_771_963_198_501, timestamp])
    assert (table["kafka_timestamp"].to_pylist(), bad) == ([MOMENT, None], {})


def test_split_bad_rows_leaves_removed_columns_null() -> None:
    table, _ = split(json_stream("v INT"), [b'{"v":1}'], schema=schema_of(json_stream("v INT, gone STRING")))
    assert (table["v"].to_pylist(), table["gone"].to_pylist()) == ([1], [None])


def test_split_bad_rows_counts_no_extra_fields_of_refused_messages() -> None:
    stream = json_stream("v TIMESTAMP")
    values: list[bytes | None] = [b'{"v":"2026-01-01T00:00:00Z","x":1}', b'{"v":"no time","x":1,"y":2}', b"{"]
    _, decoded = split_bad_rows(
        messages_of(values), decoder=decoder_for(stream), stream=stream, schema=schema_of(stream), checkpoint_id=7
    )
    assert (sorted(decoded.bad), dict(decoded.extras)) == ([1, 2], {"x": 1})
