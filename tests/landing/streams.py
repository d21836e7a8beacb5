"""Streams, decoders and messages for tests of landing that need no Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.landing.batch import Messages
from headrace.landing.columns import landed_columns
from headrace.landing.decode import Decoded, Decoder, decoder_of
from headrace.spec.avro import parse_avro
from headrace.spec.ddl import parse_ddl
from headrace.spec.pipeline import EpochUnit, EventTime, Stream, TableName
from headrace.spec.problems import Place, Problems
from headrace.tables.schema import iceberg_schema

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
    """Gives back the decoded rows; each message is a row or refused, never both and never neither."""
    return [{name: column[index].as_py() for name, column in decoded.columns.items()} for index in range(len(decoded.rows))]


def decode(stream: Stream, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Gives back the rows and the reasons, and checks that no message got lost on the way."""
    decoded = decoder_for(stream).decode(list(values))
    assert sorted([*decoded.rows, *decoded.bad]) == list(range(len(values)))
    assert all(len(column) == len(decoded.rows) for column in decoded.columns.values())
    return rows_of(decoded), dict(decoded.bad)


def messages_of(values: Sequence[bytes | None], *, timestamps: Sequence[int] | None = None) -> Messages:
    count = len(values)
    return Messages(
        topic="things",
        values=list(values),
        partitions=[0] * count,
        offsets=list(range(count)),
        timestamps=list(timestamps or [1_771_963_198_501] * count),
        bytes=sum(len(value or b"") for value in values),
    )
