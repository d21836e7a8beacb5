"""The stage tables of a pipeline, as stage_tables.yaml has them: which columns of a captured table, of which types."""

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
"""The layer of these tables."""

SETTINGS = ("about", "partition_by", "target_lag", "expect")
KEYS = ("source", "event_date", "columns", "other_columns", *SETTINGS)
OTHERS = ("include", "leave_out")
UNITS: tuple[Unit, ...] = get_args(Unit)
DATES = (Primitive("date"), Primitive("timestamp"), Primitive("timestamp_ntz"))


@dataclass(frozen=True)
class StageFile:
    """The file, the namespace of its tables, the streams that they can be made from, and the macros of their conditions."""

    path: Path
    place: Place
    namespace: str
    streams: Sequence[Stream]
    macros: Macros


def read_stage_tables(file: StageFile, *, environ: Mapping[str, str], problems: Problems) -> tuple[LayerTable, ...]:
    """Return the tables of the file, in its order; mistakes are kept as problems with their lines."""
    document = problems.attempt(read_document, file.path, place=file.place, environ=environ)
    section = document and problems.attempt(document.section, ("tables",), problems=problems)
    value = section and problems.attempt(lambda: section.need("tables", example="{orders: {event_date: created_at}}"))
    entries = value and problems.attempt(value.section, None, problems=problems)
    found = [_read_table(each, file, problems) for each in (entries.values.values() if entries else ())]
    return tuple(each for each in found if each is not None)


def staged_names(path: Path, *, place: Place, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the file's tables, as far as it can be read."""
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
    settings = read_settings(_only(value, SETTINGS), macros=file.macros, problems=problems)
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
    values = {each.name: getattr(settings, each.name) for each in fields(TableSettings)}
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
    """Return the stream whose raw table the entry is made from: that of `source`, or else of the entry's own name."""
    captured = {str(each.table): each for each in streams if each.format == "debezium"}
    value = section.find("source")
    if value is None:
        found = next((each for each in captured.values() if each.name == section.value.key), None)
        if found is None:
            known = suggest(section.value.key, [each.name for each in captured.values()], plural="Streams of changes")
            what = f'there is no stream of changes "{section.value.key}"'
            raise section.value.key_error(what, fix=f"{known} Fix the name, or add source: raw.…")
        return found
    name = str(parse_table_name(value.text(example="raw.shop.orders"), value))
    if name not in captured:
        hint = suggest(name, list(captured), plural="Tables")
        raise value.error(f"no stream of changes (format: debezium) lands in {name}", fix=f"{hint} Fix the name")
    return captured[name]


def _check_name(value: Value) -> None:
    if not is_identifier(value.key):
        raise value.key_error(f"\"{value.key}\" can't be a table's name", fix=f"Use {IDENTIFIER_RULE}")


def _read_columns(section: Section, stream: Stream, problems: Problems) -> tuple[StagedColumn, ...]:
    value = section.find("columns")
    if value is None:
        return ()
    value.section(None, problems=problems)  # tells keys that stand twice; a name alone is a column, too
    source = {each.name: each for each in source_columns(stream.columns)}
    keys = [key.value for key, _ in value.node.value] if isinstance(value.node, yaml.MappingNode) else []
    found = [problems.attempt(_read_column, value.at(key), source, stream, problems) for key in dict.fromkeys(keys)]
    return tuple(each for each in found if each is not None)


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
        raise unit.error(f'"{value.key}" is {source[value.key].type}, which counts nothing', fix="Leave the unit out")
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
        found = parse_ddl(f"x {written}", place=value.place, problems=problems)
    except SpecError as error:
        problems.errors.append(error)
        found = ()
    if problems.errors or len(found) != 1 or found[0].required:
        raise value.error(f'"{written}" is no type', fix="Write one such as BIGINT, DECIMAL(12,2), TIMESTAMP or STRING")
    return found[0].type


def _read_date(value: Value, staged: Staged, stream: Stream) -> str:
    name = value.text(example="created_at")
    source = {each.name: each for each in source_columns(stream.columns)}
    dates = [each.name for each in source.values() if staged_type(staged, each) in DATES]
    if name not in dates:
        what = f"is {staged_type(staged, source[name])}, not a date or a time" if name in source else "is not a column"
        raise value.error(
            f'"{name}" {what}', fix=f"{suggest(name, dates, plural='Dates and times')} Choose one, or leave it out"
        )
    if staged.find(name) is None and not staged.others:
        raise value.error(f'"{name}" is not among the columns', fix="Add it to columns")
    return name


def _only(value: Value, keys: Sequence[str]) -> Value:
    """Return the same value with these keys alone."""
    node = value.node
    pairs = [pair for pair in node.value if pair[0].value in keys] if isinstance(node, yaml.MappingNode) else []
    return replace(value, node=yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark))
