"""Read the stage tables of a pipeline from stage_tables.yaml: which columns of a captured table, with which types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import get_args

import yaml

from headrace.errors import SpecError
from headrace.spec.loading.ddl import parse_ddl
from headrace.spec.loading.document import NULL, Section, Value, read_document
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier, parse_table_name
from headrace.spec.loading.table_settings import read_settings
from headrace.spec.model.layers import Expectation, LayerTable, Staged, StagedColumn, TableSettings
from headrace.spec.model.meanings import Unit
from headrace.spec.model.pipeline import Stream, TableName
from headrace.spec.model.types import Column, ColumnType, Primitive
from headrace.spec.problems import Place, Problems, suggest
from headrace.spec.sql.macro_expansion import Macros
from headrace.spec.sql.stage_query import READABLE, UNREADABLE, source_columns, stage_query, staged_type

STAGE = "stage"
"""The layer of stage tables."""

SETTINGS = ("about", "partition_by", "target_lag", "snapshots_for", "expect")
KEYS = ("source", "event_date", "columns", "other_columns", *SETTINGS)
OTHERS = ("include", "leave_out")
UNITS: tuple[Unit, ...] = get_args(Unit)
DATES = (Primitive("date"), Primitive("timestamp"), Primitive("timestamp_ntz"))


@dataclass(frozen=True)
class StageFile:
    """The file, the namespace of its tables, the streams that they can read, and the macros that conditions can call."""

    path: Path
    place: Place
    namespace: str
    streams: Sequence[Stream]
    macros: Macros


def read_stage_tables(file: StageFile, *, environ: Mapping[str, str], problems: Problems) -> tuple[LayerTable, ...]:
    """Return the tables in the order of the file. Errors are collected in `problems`."""
    document = problems.attempt(read_document, file.path, place=file.place, environ=environ)
    section = document and problems.attempt(document.section, ("tables",), problems=problems)
    value = section and problems.attempt(lambda: section.need("tables", example="{orders: {event_date: created_at}}"))
    entries = value and problems.attempt(value.section, None, problems=problems)
    tables = [_read_table(entry, file, problems) for entry in (entries.values.values() if entries else ())]
    return tuple(table for table in tables if table is not None)


def staged_names(path: Path, *, place: Place, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the file's tables, or none if it can't be read."""
    problems = Problems()
    document = problems.attempt(read_document, path, place=place, environ=environ)
    try:
        node = document.at("tables").node if document else None
    except KeyError:
        return ()
    return tuple(key.value for key, _ in node.value) if isinstance(node, yaml.MappingNode) else ()


def _read_table(value: Value, file: StageFile, problems: Problems) -> LayerTable | None:
    before, attempt = len(problems.errors), problems.attempt
    section = attempt(value.section, KEYS, problems=problems)
    stream = section and attempt(_find_stream, section, file.streams)
    if not section or not stream:
        return None
    attempt(_check_name, value)
    settings = read_settings(_select_keys(value, SETTINGS), macros=file.macros, problems=problems)
    columns = attempt(_read_columns, section, stream, problems) or ()
    others = section.find("other_columns")
    staged = Staged(
        stream.table,
        value.key_line,
        columns,
        others is None or attempt(others.choice, OTHERS) == OTHERS[0],
    )
    if settings is None or len(problems.errors) > before:
        return None
    dated = section.find("event_date")
    if dated is not None:
        staged = replace(staged, event_date=attempt(_read_date, dated, staged, stream))
    if len(problems.errors) > before:
        return None
    settings = replace(settings, lines={**settings.lines, "": value.key_line})
    return attempt(_make_table, TableName(file.namespace, value.key), staged, stream, settings, file)


def _make_table(name: TableName, staged: Staged, stream: Stream, settings: TableSettings, file: StageFile) -> LayerTable:
    values = {field.name: getattr(settings, field.name) for field in fields(TableSettings)}
    readable = Expectation("every value can be read as its type", READABLE, "quarantine", staged.line)
    values["expectations"] = (readable, *settings.expectations)
    values["except_columns"] = (UNREADABLE,)
    return LayerTable(
        table=name,
        layer=STAGE,
        path=file.path,
        place=file.place,
        source=stage_query(staged, stream.columns, place=file.place),
        drivers=(stream.table,),
        staged=staged,
        **values,
    )


def _find_stream(section: Section, streams: Sequence[Stream]) -> Stream:
    """Return the stream whose raw table the entry reads: the one in `source`, else the stream of the entry's name."""
    captured = {str(stream.table): stream for stream in streams if stream.format == "debezium"}
    value = section.find("source")
    if value is None:
        matching = next((stream for stream in captured.values() if stream.name == section.value.key), None)
        if matching is None:
            known = suggest(section.value.key, [stream.name for stream in captured.values()], plural="Debezium streams")
            what = f'not found: stream "{section.value.key}" with format: debezium'
            raise section.value.key_error(what, fix=f"{known} Fix the name, or add source: raw.…")
        return matching
    name = str(parse_table_name(value.text(example="raw.shop.orders"), value))
    if name not in captured:
        hint = suggest(name, list(captured), plural="Tables")
        raise value.error(f"no stream with format: debezium lands in {name}", fix=f"{hint} Fix the name")
    return captured[name]


def _check_name(value: Value) -> None:
    if not is_identifier(value.key):
        raise value.key_error(f'"{value.key}" is not a valid table name', fix=f"Use {IDENTIFIER_RULE}")


def _read_columns(section: Section, stream: Stream, problems: Problems) -> tuple[StagedColumn, ...]:
    value = section.find("columns")
    if value is None:
        return ()
    value.section(None, problems=problems)  # reports duplicate keys; a key without a value is a column, too
    source = {column.name: column for column in source_columns(stream.columns)}
    keys = [key.value for key, _ in value.node.value] if isinstance(value.node, yaml.MappingNode) else []
    columns = [problems.attempt(_read_column, value.at(key), source, stream, problems) for key in dict.fromkeys(keys)]
    return tuple(column for column in columns if column is not None)


def _read_column(value: Value, source: Mapping[str, Column], stream: Stream, problems: Problems) -> StagedColumn:
    """Return a column: `id:`, `total: decimal(12,2)`, or `at: {cast: timestamp, unit: us}`."""
    if value.key not in source:
        hint = suggest(value.key, list(source), plural="Columns")
        raise value.key_error(f'"{value.key}" is not a column of {stream.table}', fix=f"{hint} Fix the name")
    if value.node.tag == NULL:
        return StagedColumn(value.key, value.key_line)
    if value.is_text():
        return StagedColumn(value.key, value.key_line, _read_type(value))
    section = value.section(("cast", "unit"), problems=problems)
    cast, unit = section.find("cast"), section.find("unit")
    if unit is not None and source[value.key].type not in (Primitive("int"), Primitive("long")):
        raise unit.error(
            f'unit requires an integer column, and "{value.key}" is {source[value.key].type}', fix="Remove the unit"
        )
    return StagedColumn(
        value.key,
        value.key_line,
        None if cast is None else _read_type(cast),
        None if unit is None else unit.choice(UNITS),
    )


def _read_type(value: Value) -> ColumnType:
    problems = Problems()
    written = value.text(example="decimal(12,2)")
    try:
        parsed = parse_ddl(f"x {written}", place=value.place, problems=problems)
    except SpecError as error:
        problems.errors.append(error)
        parsed = ()
    if problems.errors or len(parsed) != 1 or parsed[0].required:
        raise value.error(
            f'"{written}" is not a valid type', fix="Write a type such as BIGINT, DECIMAL(12,2), TIMESTAMP or STRING"
        )
    return parsed[0].type


def _read_date(value: Value, staged: Staged, stream: Stream) -> str:
    name = value.text(example="created_at")
    source = {column.name: column for column in source_columns(stream.columns)}
    dates = [column.name for column in source.values() if staged_type(staged, column) in DATES]
    if name not in dates:
        what = f"is {staged_type(staged, source[name])}, not a date or a timestamp" if name in source else "is not a column"
        raise value.error(
            f'"{name}" {what}', fix=f"{suggest(name, dates, plural='Dates and timestamps')} Choose one, or remove event_date"
        )
    if staged.find(name) is None and not staged.others:
        raise value.error(f'event_date "{name}" is not listed in columns', fix="Add it to columns")
    return name


def _select_keys(value: Value, keys: Sequence[str]) -> Value:
    """Return the value with only these keys."""
    node = value.node
    pairs = [pair for pair in node.value if pair[0].value in keys] if isinstance(node, yaml.MappingNode) else []
    return replace(value, node=yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark))
