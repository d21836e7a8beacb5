"""Read the layer tables of a pipeline: every SQL and Python file in a layer's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import yaml

from headrace.errors import SpecError
from headrace.spec.loading.document import Value, parse_document, read_text
from headrace.spec.loading.files import Files
from headrace.spec.loading.functions import SESSION, mark_of, parse_functions
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier, namespace_of
from headrace.spec.loading.table_settings import read_settings
from headrace.spec.model.layers import Function, LayerTable, Query, TableSettings
from headrace.spec.model.pipeline import TableName
from headrace.spec.problems import Place, Problems, suggest
from headrace.spec.sql.macro_expansion import Expanded, Macros
from headrace.spec.sql.mixed_rows import mixes_rows
from headrace.spec.sql.queries import parse_query
from headrace.spec.sql.source_map import locate

OTHER_FOLDERS = frozenset(("schemas", "sources", "generators", "serving", "sample", "expected", "migrations", "connectors"))
_OPEN, _CLOSE = "/*", "*/"


def read_tables(
    files: Files,
    *,
    namespace: str | None,
    others: Sequence[TableName],
    macros: Macros,
    argument: str,
    environ: Mapping[str, str],
    problems: Problems,
) -> tuple[LayerTable, ...]:
    """Return the tables of all layers, folder by folder. Errors are collected in `problems`.

    The tables can read one another and `others`, and their SQL can call `macros`. A table's namespace is its folder's name,
    unless the pipeline sets a `namespace`, which may contain `{layer}`.
    """
    names = name_tables(files, namespace=namespace)
    context = _Context(_by_parameter(others, tuple(names)), macros, environ, problems)
    tables: list[LayerTable] = []
    for name, path in ((name, path) for name, paths in names.items() for path in paths):
        place = files.place(path, argument=argument)
        read = problems.attempt(_read_file, path, name, place=place, context=context)
        tables.extend(read or ())
    return tuple(tables)


def name_tables(files: Files, *, namespace: str | None) -> dict[TableName, list[Path]]:
    """Return the tables that the files of all layers define, with their files. Two files may define the same table."""
    tables: dict[TableName, list[Path]] = {}
    for path in list_table_files(files.pipeline_folder):
        tables.setdefault(TableName(namespace_of(path.parent.name, written=namespace), path.stem), []).append(path)
    return tables


def _by_parameter(others: Sequence[TableName], files: Sequence[TableName]) -> dict[str, tuple[TableName, ...]]:
    """Return the tables that a parameter of a Python table can refer to: `orders`, or `stage__orders` for stage.shop.orders.

    The table of a file takes precedence over a raw or stage table of the same name.
    """
    by_name: dict[str, tuple[TableName, ...]] = {}
    for tables in (others, files):
        level: dict[str, tuple[TableName, ...]] = {}
        for table in tables:
            for parameter in (table.name, _long_parameter(table)):
                level[parameter] = (*level.get(parameter, ()), table)
        by_name |= level
    return by_name


def _long_parameter(table: TableName) -> str:
    return f"{table.parts[0]}__{table.name}"


def list_table_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a pipeline's folder that define tables, layer by layer."""
    for layer in sorted(path for path in folder.iterdir() if path.is_dir() and path.name not in OTHER_FOLDERS):
        for path in sorted(layer.iterdir()):
            if path.suffix in (".sql", ".py") and not path.name.startswith(("_", ".")):
                yield path


@dataclass(frozen=True)
class _Context:
    """What reading any table needs. `by_name` maps the parameter names of Python tables to tables."""

    by_name: Mapping[str, tuple[TableName, ...]]
    macros: Macros
    environ: Mapping[str, str]
    problems: Problems


def _read_file(path: Path, name: TableName, *, place: Place, context: _Context) -> list[LayerTable]:
    for part, what in ((path.parent.name, "layer"), (path.stem, "table")):
        if not is_identifier(part):
            raise place.error(f'"{part}" is not a valid {what} name', line=1, fix=f"Rename it: {IDENTIFIER_RULE}")
    text = read_text(path, place=place)
    if path.suffix == ".sql":
        table = _read_query(path, name, text, place=place, context=context)
        return [table] if table else []
    return list(_read_functions(path, name, text, place=place, context=context))


def _read_query(path: Path, name: TableName, text: str, *, place: Place, context: _Context) -> LayerTable | None:
    problems = context.problems
    header = problems.attempt(_header, text, place=place, environ=context.environ)
    settings = read_settings(header, macros=context.macros, problems=problems) if header else None
    before = len(problems.errors)
    sql = _expand(text, place=place, context=context)
    if sql is None:
        return None
    parsed = problems.attempt(parse_query, sql.text, place=place, problems=problems, origin=sql.origin)
    if settings is None or parsed is None or len(problems.errors) > before:
        return None
    table = _table(path, name, settings, place, parsed.query, parsed.drivers, parsed.lookups)
    return replace(table, reread=parsed.reread, mixes_rows=mixes_rows(parsed.tree, table.kind))


def _expand(text: str, *, place: Place, context: _Context) -> Expanded | None:
    """Return the SQL of a file with its macros expanded, or None if a call has a mistake."""

    def refuse(what: str, offset: int, fix: str) -> SpecError:
        location = locate(text, offset)
        return place.error(what, line=location.line, column=location.column, fix=fix)

    return context.macros.expand(text, refuse=refuse, errors=context.problems.errors)


def _header(text: str, *, place: Place, environ: Mapping[str, str]) -> Value:
    """Return the YAML of the comment at the top, with the file's line numbers. No comment means no settings."""
    start = len(text) - len(text.lstrip())
    if not text.startswith(_OPEN, start):
        node = yaml.MappingNode("tag:yaml.org,2002:map", [], mark_of(1), mark_of(1))
        return Value("", 1, node, place, environ)
    end = text.find(_CLOSE, start)
    if end < 0:
        raise place.error("unterminated comment at the top", line=text.count("\n", 0, start) + 1, fix="End it with */")
    lines_before = "\n" * text.count("\n", 0, start)
    return parse_document(lines_before + text[start + len(_OPEN) : end], place=place, environ=environ)


def _read_functions(
    path: Path,
    name: TableName,
    text: str,
    *,
    place: Place,
    context: _Context,
) -> Iterator[LayerTable]:
    problems, by_name = context.problems, context.by_name
    for function in parse_functions(text, place=place, environ=context.environ):
        if function.name != name.name:
            problems.attempt(_refuse_name, function.name, name.name, function.line, place=place)
            continue
        settings = read_settings(function.settings, macros=context.macros, problems=problems)
        parameters = []
        for parameter in function.parameters:
            candidates = (
                ()
                if parameter == SESSION
                else tuple(candidate for candidate in by_name.get(parameter, ()) if candidate != name)
            )
            if parameter != SESSION and len(candidates) != 1:
                problems.attempt(_refuse_input, parameter, function.line, place=place, candidates=candidates, by_name=by_name)
            parameters.append((parameter, candidates[0] if candidates else None))
        if settings is None:
            continue
        inputs = tuple(table for _, table in parameters if table is not None)
        yield _table(
            path,
            name,
            settings,
            place,
            Function(function.name, tuple(parameters)),
            inputs[:1],
            inputs[1:],
            about=function.about,
            line=function.line,
        )


def _refuse_name(function: str, table: str, line: int, *, place: Place) -> None:
    raise place.error(
        f"function {function} does not match its file {table}.py", line=line, fix="Give the function and the file the same name"
    )


def _refuse_input(
    parameter: str,
    line: int,
    *,
    place: Place,
    candidates: Sequence[TableName],
    by_name: Mapping[str, tuple[TableName, ...]],
) -> None:
    if candidates:
        raise place.error(
            f'parameter "{parameter}" is ambiguous: {" or ".join(map(str, candidates))}',
            line=line,
            fix=f"Add the layer to the name, such as {_long_parameter(candidates[-1])}",
        )
    known = [name for name, tables in by_name.items() if len(tables) == 1]
    shortest = [name for name in known if by_name[name][0].name == name or len(by_name[by_name[name][0].name]) > 1]
    raise place.error(
        f'parameter "{parameter}" is not a table of this pipeline',
        line=line,
        fix=f"{suggest(parameter, shortest, plural='Tables')} Fix the name",
    )


def _table(
    path: Path,
    name: TableName,
    settings: TableSettings,
    place: Place,
    source: Query | Function,
    drivers: tuple[TableName, ...],
    lookups: tuple[TableName, ...],
    *,
    about: str = "",
    line: int = 1,
) -> LayerTable:
    values = {field.name: getattr(settings, field.name) for field in fields(TableSettings)}
    values["lines"] = {"": line, **settings.lines}
    values["about"] = settings.about or about
    return LayerTable(
        table=name, layer=path.parent.name, path=path, place=place, source=source, drivers=drivers, lookups=lookups, **values
    )
