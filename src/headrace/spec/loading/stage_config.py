"""The text of a stage_tables.yaml, and of floor schemas, made from the schemas that messages are written with."""

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
"""Names of columns that say when a row came to be, the likeliest first."""

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
    """A stream of changes as pipeline.yml names it, whether its schema is there yet or not."""

    name: str
    topic: str
    table: TableName
    schema: Path


@dataclass(frozen=True)
class CapturedPipeline:
    """What is known of a pipeline that captures a database before its schemas and its stage tables are there."""

    folder: Path
    stage: Path | None
    streams: tuple[CapturedStream, ...]


def read_captured(name_or_path: str, *, environ: Mapping[str, str], folder: Path) -> CapturedPipeline:
    """Return the streams of changes of a pipeline. Files that it names need not be there; other mistakes are SpecErrors."""
    path = find_pipeline(name_or_path, folder=folder)
    place = Files(path, absolute(folder)).place(path / FILE, argument=name_or_path)
    problems = Problems()
    document = read_document(path / FILE, place=place, environ=environ)
    section = document.section(None, problems=problems)
    entries = section.need("streams", example="{orders: {topic: …, format: debezium, …}}").section(None, problems=problems)
    streams = [_read_stream(each, path, problems) for each in entries.values.values()]
    if problems.errors:
        raise problems.errors[0]
    found = tuple(each for each in streams if each)
    if not found:
        raise place.error("no stream is one of changes", line=1, fix="Add one with format: debezium")
    return CapturedPipeline(path, _find_stage(document, path), found)


def stage_text(schemas: Iterable[tuple[CapturedStream, str]]) -> str:
    """Return a stage_tables.yaml of the tables whose envelopes these schemas are, written as Avro."""
    return "tables:\n" + "\n".join(_entry(stream, envelope_columns(text, of=stream)) for stream, text in schemas)


def envelope_columns(text: str, *, of: CapturedStream) -> tuple[Column, ...]:
    """Return the columns of an envelope; a schema that no table can have is a SpecError."""
    problems = Problems()
    columns = parse_avro(text, place=Place(f"schema of {of.topic}", ""), problems=problems)
    if problems.errors:
        raise problems.errors[0]
    if not source_columns(columns):
        raise SpecError("the schema is not that of a change", where=of.topic, next_step="Check that Debezium writes the topic.")
    return all_optional(columns)


def as_avro(schema: Mapping[str, Any]) -> str:
    """Return a schema of Kafka Connect's, as messages in JSON bring it, as the Avro that the same connector would write."""
    return json.dumps(_avro(schema, "Envelope", set()), indent=2)


def _entry(stream: CapturedStream, columns: tuple[Column, ...]) -> str:
    source, staged = source_columns(columns), Staged(stream.table, 1)
    types = {each.name: staged_type(staged, each) for each in source}
    dated = next((name for name in DATED_BY if types.get(name) in _MOMENTS), None)
    lines = [f"  {stream.name}:", f"    source: {stream.table}"]
    lines += [f"    event_date: {dated}"] if dated else []
    lines += ["    partition_by: [event_date]", "    columns:"]
    width = max(len(_key(each.name)) for each in source) + 1
    for each in source:
        told = sql_type(types[each.name]).lower()
        if types[each.name] == each.type:
            lines.append(f"      {_key(each.name) + ':':<{width}}  # {told}")
        else:
            lines.append(f"      {_key(each.name) + ':':<{width}} {_key(told)}")
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    """Return a text as YAML has it: in quotes, unless it is plain."""
    plain = text.replace("_", "").replace("(", "").replace(")", "").replace(",", "").replace("<", "").replace(">", "")
    return text if plain.isalnum() and plain[0].isalpha() and text not in _WORDS else json.dumps(text)


_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
"""What YAML reads as something else than text."""


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
    said = {"connect.name": schema["name"]} if isinstance(schema.get("name"), str) else {}
    if kind == "struct":
        own = str(schema.get("name") or name)
        if own in taken:
            return own
        taken.add(own)
        fields = [_field(each, f"{name}_{each['field']}", taken) for each in schema["fields"]]
        return {"type": "record", "name": own, "fields": fields, **said}
    if kind == "array":
        return {"type": "array", "items": _optional(schema["items"], name, taken), **said}
    if kind == "map":
        return {"type": "map", "values": _optional(schema["values"], name, taken), **said}
    parameters = schema.get("parameters") or {}
    if said.get("connect.name") == "org.apache.kafka.connect.data.Decimal" and "connect.decimal.precision" in parameters:
        precision, scale = int(parameters["connect.decimal.precision"]), int(parameters["scale"])
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale, **said}
    plain = _PRIMITIVES.get(str(kind))
    if plain is None:
        raise SpecError(f"the type {kind} is none of Kafka Connect's", where=name, next_step="Check the topic's messages.")
    return {"type": plain, **said} if said else plain


def _field(field: Mapping[str, Any], name: str, taken: set[str]) -> dict[str, object]:
    return {"name": field["field"], "type": _optional(field, name, taken)}


def _optional(schema: Mapping[str, Any], name: str, taken: set[str]) -> object:
    inner = _avro(schema, name, taken)
    return ["null", inner] if schema.get("optional") else inner
