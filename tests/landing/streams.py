"""Streams, decoders and messages for tests of landing that need no Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.iceberg.schema.columns import iceberg_schema
from headrace.kafka.records import Messages, RecordBatch, Records, split_messages
from headrace.landing.decode import Block, Decoded, Decoder, decoder_of
from headrace.spec.loading.avro import parse_avro
from headrace.spec.loading.ddl import parse_ddl
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import EpochUnit, EventTime, Stream, TableName
from headrace.spec.problems import Place, Problems
from tests.landing.stored import MOMENT, Stored, batch_of

NAME = TableName("raw", "things")


def json_stream(ddl: str, *, epoch_unit: EpochUnit = "ms", max_record_bytes: int = 4 * 1024 * 1024) -> Stream:
    problems = Problems()
    columns = parse_ddl(ddl, place=Place("things.sql", "test"), problems=problems)
    assert not problems.errors, problems.errors
    return Stream("things", "things", 1, "json", columns, NAME, epoch_unit=epoch_unit, max_record_bytes=max_record_bytes)


def avro_stream(avsc: str, *, event_time: EventTime | None = None) -> Stream:
    problems = Problems()
    columns = parse_avro(avsc, place=Place("things.avsc", "test"), problems=problems)
    assert not problems.errors, problems.errors
    return Stream("things", "things", 1, "avro", columns, NAME, avro_schema=avsc, event_time=event_time)


def schema_of(stream: Stream) -> pa.Schema:
    return schema_to_pyarrow(iceberg_schema(landed_columns(stream)))


def decoder_for(stream: Stream) -> Decoder:
    return decoder_of(stream, schema_of(stream))


def rows_of(decoded: Decoded) -> list[dict[str, Any]]:
    """Return the decoded rows. Each message is either a row or refused."""
    return [{name: column[index].as_py() for name, column in decoded.columns.items()} for index in range(len(decoded.rows))]


def decode(stream: Stream, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the rows and the reasons.

    Checks that no message got lost on the way, and that stored records are decoded to the same, or not at once.
    """
    decoder = decoder_for(stream)
    decoded = decoder.decode(list(values))
    assert sorted([*decoded.rows, *decoded.bad]) == list(range(len(values)))
    assert all(len(column) == len(decoded.rows) for column in decoded.columns.values())
    for key in (None, b"key"):
        block = decode_stored(decoder, values, key=key) if values else None
        if block is not None:
            assert not decoded.bad
            assert block.places["offset"].to_pylist() == list(range(len(values)))
            assert rows_of(Decoded(block.columns, decoded.rows, {})) == rows_of(decoded)
    return rows_of(decoded), dict(decoded.bad)


def decode_stored(decoder: Decoder, values: Sequence[bytes | None], *, key: bytes | None = None) -> Block | None:
    """Return the decoded values, as stored records of one batch."""
    return decoder.decode_block([batch_of([Stored(value, offset, key=key) for offset, value in enumerate(values)])])


def messages_of(values: Sequence[bytes | None], *, timestamps: Sequence[int] | None = None) -> Messages:
    """Return the values as messages of one batch."""
    times = timestamps or [MOMENT] * len(values)
    stored = [Stored(value, offset, time) for offset, (value, time) in enumerate(zip(values, times, strict=True))]
    (messages,) = split_messages(records_of_topic(batch_of(stored, times=0)), rows=len(values))
    return messages


def records_of_topic(*batches: RecordBatch) -> Records:
    records = Records("things")
    for batch in batches:
        records.add(batch)
    return records
