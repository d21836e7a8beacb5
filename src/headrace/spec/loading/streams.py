"""Read a stream from its section of pipeline.yml."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import get_args

from headrace.spec.loading.document import Section, Value
from headrace.spec.loading.durations import read_retention, read_seconds
from headrace.spec.loading.files import Files, Schema
from headrace.spec.loading.keys import STREAM_KEYS
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier, read_table_name, read_topic
from headrace.spec.loading.partitioning import read_partitioning
from headrace.spec.model.columns import COORDINATES, name_problem
from headrace.spec.model.envelopes import PARTS, all_optional, envelope_problem
from headrace.spec.model.pipeline import (
    CleanupPolicy,
    EpochUnit,
    EventTime,
    Format,
    Framing,
    Stream,
    TableName,
    TopicSettings,
    Transform,
)
from headrace.spec.model.types import Column, ColumnType, Primitive
from headrace.spec.problems import Problems

FORMATS: tuple[Format, ...] = get_args(Format)
CLEANUP_POLICIES: tuple[CleanupPolicy, ...] = get_args(CleanupPolicy)
FRAMINGS: tuple[Framing, ...] = get_args(Framing)
_FOREVER = "forever"
EPOCH_UNITS: tuple[EpochUnit, ...] = get_args(EpochUnit)
WHOLE_NUMBERS = (Primitive("int"), Primitive("long"))
MAX_PARTITIONS = 10_000
MAX_RECORD_BYTES = 1_000_000_000


@dataclass(frozen=True)
class GeneratorSettings:
    """A stream's generator: its file, the seconds between two events, and the path of the receiver that it sends them to."""

    path: Path | None = None
    every_seconds: float = Stream.every_seconds
    through: str | None = None


@dataclass(frozen=True)
class StreamReader:
    """Read the keys of one stream: each method returns one value or raises a SpecError."""

    section: Section
    files: Files
    problems: Problems

    def topic(self) -> str:
        return read_topic(self.section.need("topic", example=f"{self.section.value.key}-input"))

    def retention(self, key: str) -> float | None:
        value = self.section.find(key)
        if value is None:
            return None
        return inf if value.is_text() and value.text() == _FOREVER else self.interval(value)

    def cleanup_policy(self) -> CleanupPolicy | None:
        value = self.section.find("cleanup_policy")
        return value.choice(CLEANUP_POLICIES) if value else None

    def table(self) -> TableName:
        return read_table_name(self.section.need("table", example=f"raw.{self.section.value.key}"))

    def format(self) -> Format:
        return self.section.need("format", example="json").choice(FORMATS)

    def schema(self) -> Schema | None:
        value = self.section.need("schema", example=f"schemas/{self.section.value.key}.sql")
        return self.files.read_schema(value, problems=self.problems)

    def avro_schema(self, message_format: Format | None, schema: Schema) -> str | None:
        """Return the text of the schema that Avro messages are decoded with."""
        if message_format in ("avro", "debezium") and schema.avro is None:
            value = self.section.need("schema", example="schemas/event.avsc")
            what = f'format {message_format} needs an .avsc file, and "{value.text()}" is not one'
            raise value.error(what, fix="Write the schema as Avro in an .avsc file")
        return schema.avro if message_format in ("avro", "debezium") else None

    def framing(self, message_format: Format | None) -> Framing:
        """Return the framing: whether Avro messages start with the id of their schema."""
        value = self.section.find("framing")
        if value is None:
            return Stream.framing
        if message_format is not None and message_format != "avro":
            raise value.error(f"framing requires format: avro, not {message_format}", fix="Remove framing")
        return value.choice(FRAMINGS)

    def columns(self, message_format: Format | None, schema: Schema) -> tuple[Column, ...]:
        """Return the columns of messages. For Debezium they are a minimum, all optional: its messages bring their schemas."""
        if message_format != "debezium" or schema.avro is None:
            return schema.columns
        problem = envelope_problem(schema.columns)
        if problem:
            value = self.section.need("schema", example="schemas/event.avsc")
            raise value.error(
                f"format debezium needs the schema of the whole envelope: {problem}",
                fix=f"Write a record with {', '.join(PARTS)}, as Debezium registers it for the topic",
            )
        return all_optional(schema.columns)

    def event_time(self, columns: tuple[Column, ...] | None) -> EventTime | None:
        """Return the event-time column to add. If `columns` is None because the schema has errors, check only the unit."""
        value = self.section.find("event_time")
        if value is None:
            return None
        inner = value.section(("column", "from", "unit"), problems=self.problems)
        attempt = self.problems.attempt
        unit = attempt(self.epoch_unit, inner.find("unit"))
        if columns is None:
            return None
        column = attempt(lambda: self._new_column(inner.need("column", example="event_time"), columns))
        source = attempt(lambda: self._whole_number(inner.need("from", example="timestamp"), columns))
        return None if unit is None or column is None or source is None else EventTime(column, source, unit)

    def _new_column(self, value: Value, columns: tuple[Column, ...]) -> str:
        """Return the name of a column to add to these."""
        problem = name_problem(value.text(), taken=[column.name for column in columns])
        if problem:
            raise value.error(f"event_time: {problem[0]}", fix="Choose another name")
        return value.text()

    def _whole_number(self, source: Value, columns: tuple[Column, ...]) -> str:
        """Return the integer column that the value names."""
        column_type = {column.name: column.type for column in columns}.get(source.text())
        if column_type not in WHOLE_NUMBERS:
            numbers = ", ".join(column.name for column in columns if column.type in WHOLE_NUMBERS) or "none"
            what = "is not a column of the schema" if column_type is None else f"is {column_type}, not an integer"
            raise source.error(
                f'event_time: "{source.text()}" {what}',
                fix=f"Integer columns are: {numbers}. Choose one of them",
            )
        return source.text()

    def partition_by(self, columns: tuple[Column, ...], event_time: EventTime | None) -> tuple[Transform, ...]:
        value = self.section.find("partition_by")
        if value is None:
            return ()
        types: dict[str, ColumnType] = {column.name: column.type for column in (*columns, *COORDINATES)}
        if event_time:
            types[event_time.column] = Primitive("timestamp")
        return read_partitioning(value, types=types, problems=self.problems)

    def generator(self, message_format: Format | None, framing: Framing | None) -> GeneratorSettings:
        """Return the generator, written as `file.py` or as `{file: …, every: …, through: …}`."""
        value = self.section.find("generator")
        if value is None:
            return GeneratorSettings()
        if message_format == "debezium":
            raise value.error("a stream with format: debezium can't have a generator", fix="Remove the generator")
        if framing == "confluent":
            what = "generators write plain Avro, which framing: confluent rejects"
            raise value.error(what, fix="Write framing: auto, or remove the generator")
        if value.is_text():
            return GeneratorSettings(self.files.find_generator(value))
        inner = value.section(("file", "every", "through"), problems=self.problems)
        path = self.files.find_generator(inner.need("file", example=f"generators/{self.section.value.key}.py"))
        every, through = inner.find("every"), inner.find("through")
        return GeneratorSettings(
            path,
            Stream.every_seconds if every is None else self.interval(every),
            None if through is None else through.text(example="/log"),
        )

    def snapshots_for(self) -> float | None:
        value = self.section.find("snapshots_for")
        return None if value is None else read_retention(value)

    def interval(self, value: Value) -> float:
        seconds = read_seconds(value, example="500ms")
        if seconds == 0:
            raise value.error(f'"{value.key}" must be longer than 0', fix="Write 500ms, 10s or 1m")
        return seconds

    def number(self, key: str, *, default: int, at_most: int) -> int:
        value = self.section.find(key)
        return default if value is None else value.whole_number(at_least=1, at_most=at_most)

    def epoch_unit(self, value: Value | None) -> EpochUnit:
        return "ms" if value is None else value.choice(EPOCH_UNITS)

    def location(self, key: str) -> str | None:
        value = self.section.find(key)
        return (value.text().strip() or None) if value else None


def read_stream(value: Value, *, files: Files, problems: Problems) -> Stream | None:
    """Return the stream, or None if it has errors, all of which are collected in `problems`."""
    before = len(problems.errors)
    problems.attempt(_check_name, value)
    section = problems.attempt(value.section, STREAM_KEYS, problems=problems)
    if section is None:
        return None
    reader, attempt = StreamReader(section, files, problems), problems.attempt
    topic = attempt(reader.topic)
    retention = attempt(reader.retention, "retention")
    cleanup_policy = attempt(reader.cleanup_policy)
    delete_retention = attempt(reader.retention, "delete_retention")
    partitions = attempt(reader.number, "partitions", default=1, at_most=MAX_PARTITIONS)
    max_record_bytes = attempt(reader.number, "max_record_bytes", default=Stream.max_record_bytes, at_most=MAX_RECORD_BYTES)
    message_format = attempt(reader.format)
    framing = attempt(reader.framing, message_format)
    schema = attempt(reader.schema)
    table = attempt(reader.table)
    epoch_unit = attempt(reader.epoch_unit, section.find("epoch_unit"))
    output = attempt(reader.location, "output")
    commit_log = attempt(reader.location, "commit_log")
    generator = attempt(reader.generator, message_format, framing)
    snapshots_for = attempt(reader.snapshots_for)
    if schema is None:
        attempt(reader.event_time, None)
        return None
    avro_schema = attempt(reader.avro_schema, message_format, schema)
    columns = attempt(reader.columns, message_format, schema)
    event_time = attempt(reader.event_time, schema.columns)
    if columns is None or (event_time is None and section.find("event_time")):
        return None
    partition_by = attempt(reader.partition_by, columns, event_time)
    if len(problems.errors) > before or not (
        topic and partitions and max_record_bytes and message_format and framing and table and epoch_unit and generator
    ):
        return None
    return Stream(
        name=value.key,
        topic=topic,
        partitions=partitions,
        format=message_format,
        columns=columns,
        table=table,
        partition_by=partition_by or (),
        event_time=event_time,
        epoch_unit=epoch_unit,
        max_record_bytes=max_record_bytes,
        avro_schema=avro_schema,
        framing=framing,
        output=output,
        commit_log=commit_log,
        generator=generator.path,
        every_seconds=generator.every_seconds,
        through=generator.through,
        topic_settings=TopicSettings(retention, cleanup_policy, delete_retention),
        snapshots_for=snapshots_for,
    )


def _check_name(value: Value) -> None:
    if not is_identifier(value.key):
        raise value.key_error(f'"{value.key}" is not a valid stream name', fix=f"Use {IDENTIFIER_RULE}")
