"""Generate stage_tables.yaml and minimum schemas from the schemas of a topic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import SpecError
from headrace.spec.loading.avro import parse_avro
from headrace.spec.loading.document import Section, Value, read_document
from headrace.spec.loading.files import Files
from headrace.spec.loading.folders import FILE, absolute, find_pipeline
from headrace.spec.loading.names import read_table_name, read_topic
from headrace.spec.model.envelopes import all_optional
from headrace.spec.model.layers import Staged
from headrace.spec.model.meanings import sql_type
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive
from headrace.spec.problems import Place, Problems
from headrace.spec.sql.stage_query import source_columns, staged_type

DATED_BY = ("created_at", "created_on", "created", "inserted_at", "occurred_at", "happened_at", "event_time")
"""Names of columns that hold a row's creation time, the likeliest first."""

_MOMENTS = (Primitive("timestamp"), Primitive("date"))
_PRIMITIVES = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "boolean": "boolean",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
}


@dataclass(frozen=True)
class CapturedStream:
    """A stream of format debezium in pipeline.yml. Its schema file may not exist yet."""

    name: str
    topic: str
    table: TableName
    schema: Path


@dataclass(frozen=True)
class CapturedPipeline:
    """A pipeline that captures a database. Its schemas and stage tables may not exist yet."""

    folder: Path
    stage: Path | None
    streams: tuple[CapturedStream, ...]


def read_captured(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> CapturedPipeline:
    """Return the debezium streams of a pipeline. Files that it names may be missing; any other mistake raises a SpecError."""
    path = find_pipeline(name_or_path, folder=folder)
    place = Files(path, absolute(folder)).place(path / FILE, argument=name_or_path)
    problems = Problems()
    document = read_document(path / FILE, place=place, environ=environ)
    section = document.section(None, problems=problems)
    entries = section.need("streams", example="{orders: {topic: …, format: debezium, …}}").section(None, problems=problems)
    streams = [_read_stream(stream, path, problems) for stream in entries.values.values()]
    if problems.errors:
        raise problems.errors[0]
    captured = tuple(stream for stream in streams if stream)
    if not captured:
        raise place.error("the pipeline has no stream with format: debezium", line=1, fix="Add one")
    return CapturedPipeline(path, _find_stage(document, path), captured)


def stage_text(schemas: Iterable[tuple[CapturedStream, str]]) -> str:
    """Return the text of a stage_tables.yaml for these streams and their envelopes' Avro schemas."""
    return "tables:\n" + "\n".join(_entry(stream, envelope_columns(text, of=stream)) for stream, text in schemas)


def envelope_columns(text: str, *, of: CapturedStream) -> tuple[Column, ...]:
    """Return the columns of an envelope. A schema that a table can't have raises a SpecError."""
    problems = Problems()
    columns = parse_avro(text, place=Place(f"schema of {of.topic}", ""), problems=problems)
    if problems.errors:
        raise problems.errors[0]
    if not source_columns(columns):
        raise SpecError(
            "the schema is not a change envelope", where=of.topic, next_step="Check that Debezium writes the topic."
        )
    return all_optional(columns)


def as_avro(schema: Mapping[str, Any]) -> str:
    """Return the Avro schema that a connector would write for a Kafka Connect schema in a JSON message."""
    return json.dumps(_avro(schema, "Envelope", set()), indent=2)


def _entry(stream: CapturedStream, columns: tuple[Column, ...]) -> str:
    source, staged = source_columns(columns), Staged(stream.table, 1)
    types = {column.name: staged_type(staged, column) for column in source}
    dated = next((name for name in DATED_BY if types.get(name) in _MOMENTS), None)
    lines = [f"  {stream.name}:", f"    source: {stream.table}"]
    lines += [f"    event_date: {dated}"] if dated else []
    lines += ["    partition_by: [event_date]", "    columns:"]
    width = max(len(_key(column.name)) for column in source) + 1
    for column in source:
        type_text = sql_type(types[column.name]).lower()
        if types[column.name] == column.type:
            lines.append(f"      {_key(column.name) + ':':<{width}}  # {type_text}")
        else:
            lines.append(f"      {_key(column.name) + ':':<{width}} {_key(type_text)}")
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    """Return a text as a YAML scalar, quoted unless it is plain."""
    plain = text.replace("_", "").replace("(", "").replace(")", "").replace(",", "").replace("<", "").replace(">", "")
    return text if plain.isalnum() and plain[0].isalpha() and text not in _WORDS else json.dumps(text)


_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
"""Plain scalars that YAML does not read as text."""


def _read_stream(value: Value, path: Path, problems: Problems) -> CapturedStream | None:
    section = problems.attempt(value.section, None, problems=problems)
    written = section.find("format") if section else None
    if not section or written is None or written.text() != "debezium":
        return None
    return problems.attempt(_captured, value.key, section, path)


def _captured(name: str, section: Section, path: Path) -> CapturedStream:
    table = read_table_name(section.need("table", example=f"raw.{name}"))
    topic = read_topic(section.need("topic", example=f"shop.public.{name}"))
    return CapturedStream(name, topic, table, path / section.need("schema", example=f"schemas/{name}.avsc").text())


def _find_stage(document: Value, path: Path) -> Path | None:
    try:
        return path / document.at("sources", "postgres", "stage").text()
    except KeyError:
        return None


def _avro(schema: Mapping[str, Any], name: str, taken: set[str]) -> object:
    kind = schema.get("type")
    meaning = {"connect.name": schema["name"]} if isinstance(schema.get("name"), str) else {}
    if kind == "struct":
        own = str(schema.get("name") or name)
        if own in taken:
            return own
        taken.add(own)
        fields = [_field(field, f"{name}_{field['field']}", taken) for field in schema["fields"]]
        return {"type": "record", "name": own, "fields": fields, **meaning}
    if kind == "array":
        return {"type": "array", "items": _optional(schema["items"], name, taken), **meaning}
    if kind == "map":
        return {"type": "map", "values": _optional(schema["values"], name, taken), **meaning}
    parameters = schema.get("parameters") or {}
    if meaning.get("connect.name") == "org.apache.kafka.connect.data.Decimal" and "connect.decimal.precision" in parameters:
        precision, scale = int(parameters["connect.decimal.precision"]), int(parameters["scale"])
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale, **meaning}
    plain = _PRIMITIVES.get(str(kind))
    if plain is None:
        raise SpecError(f"unknown Kafka Connect type {kind}", where=name, next_step="Check the topic's messages.")
    return {"type": plain, **meaning} if meaning else plain


def _field(field: Mapping[str, Any], name: str, taken: set[str]) -> dict[str, object]:
    return {"name": field["field"], "type": _optional(field, name, taken)}


def _optional(schema: Mapping[str, Any], name: str, taken: set[str]) -> object:
    inner = _avro(schema, name, taken)
    return ["null", inner] if schema.get("optional") else inner
