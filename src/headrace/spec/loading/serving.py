"""Read what a pipeline serves from pipeline.yml: `serving: {postgres: {weather: {from: …, ddl: …}}, pages: …}`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.spec.loading.document import Section, Value, read_text
from headrace.spec.loading.files import Files
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier, parse_table_name
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import PostgresTable, Serving
from headrace.spec.problems import Place, Problems, suggest

KEY = "serving"
DIALECT = "postgres"
PROGRESS = "headrace_published"
"""The Postgres table that holds the progress of each published table."""


def read_serving(section: Section, *, files: Files, tables: Sequence[LayerTable], problems: Problems) -> Serving:
    """Return what the pipeline serves. Errors are collected in `problems`."""
    value = section.find(KEY)
    serving = value and problems.attempt(value.section, ("postgres", "pages"), problems=problems)
    if not serving:
        return Serving()
    written = serving.find("postgres")
    inner = written and problems.attempt(written.section, None, problems=problems)
    published = [
        _read_table(entry, files=files, tables=tables, problems=problems) for entry in (inner.values.values() if inner else ())
    ]
    pages = serving.find("pages")
    return Serving(
        tuple(table for table in published if table is not None),
        None if pages is None else problems.attempt(_find_pages, pages, files=files),
    )


def _find_pages(value: Value, *, files: Files) -> Path:
    path = files.find(value)
    if path.suffix != ".py":
        raise value.error(f'"{value.text()}" is not a Python file', fix="Name a .py file with a FastAPI APIRouter named router")
    return path


def _read_table(value: Value, *, files: Files, tables: Sequence[LayerTable], problems: Problems) -> PostgresTable | None:
    section = problems.attempt(value.section, ("from", "ddl"), problems=problems)
    source = section and problems.attempt(_find_source, section, tables)
    path = section and problems.attempt(lambda: files.find(section.need("ddl", example=f"serving/{value.key}.sql")))
    if not source or not path or not problems.attempt(_is_name, value):
        return None
    place = files.place(path, argument=value.place.argument)
    return problems.attempt(_read_ddl, value.key, source, path, place)


def _is_name(value: Value) -> bool:
    if not is_identifier(value.key) or value.key == PROGRESS:
        raise value.key_error(f'"{value.key}" is not a valid name of a published table', fix=f"Use {IDENTIFIER_RULE}")
    return True


def _find_source(section: Section, tables: Sequence[LayerTable]) -> LayerTable:
    value = section.need("from", example="default.weather_by_minute")
    name = parse_table_name(value.text(), value)
    source = next((table for table in tables if table.table == name), None)
    if source is None:
        hint = suggest(str(name), [str(table.table) for table in tables], plural="Layer tables")
        raise value.error(f'"{name}" is not a layer table of this pipeline', fix=f"{hint} Fix the name")
    if not source.keys or source.kind == "history":
        raise value.error(
            f"{name} is of kind {source.kind}, which does not keep one row per key",
            fix="Publish a table of kind upsert, aggregate or features",
        )
    return source


def _read_ddl(name: str, source: LayerTable, path: Path, place: Place) -> PostgresTable:
    """Return the table that the file creates: one CREATE TABLE with a primary key, and its indexes."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    text = read_text(path, place=place)
    try:
        statements = [statement for statement in sqlglot.parse(text, dialect=DIALECT) if statement is not None]
    except SqlglotError as error:
        raise place.error(f"not valid Postgres SQL: {str(error).splitlines()[0]}", line=1, fix="Fix the statement") from None
    except RecursionError:
        raise place.error("the file is nested too deeply", line=1, fix="Write it with fewer levels") from None
    created = [statement for statement in statements if isinstance(statement, exp.Create)]
    first = created[0] if created and isinstance(created[0].this, exp.Schema) else None
    if (
        first is None
        or len(created) != len(statements)
        or any(statement.kind not in ("TABLE", "INDEX") for statement in created)
    ):
        fix = "Write CREATE TABLE first, and CREATE INDEX after it"
        raise place.error("only CREATE TABLE and CREATE INDEX are allowed here", line=1, fix=fix)
    if (
        first.this.this.name != name
        or first.this.this.db
        or len([statement for statement in created if statement.kind == "TABLE"]) > 1
    ):
        what = f'the file must create one table "{name}", as in pipeline.yml, not "{first.this.this.sql()}"'
        raise place.error(what, line=1, fix="Create one table of that name")
    columns = {definition.name: definition for definition in first.this.expressions if isinstance(definition, exp.ColumnDef)}
    key = [column.name for constraint in first.find_all(exp.PrimaryKey) for column in constraint.expressions]
    key += [definition.name for definition in columns.values() if definition.find(exp.PrimaryKeyColumnConstraint)]
    for column in key:
        if column.lower() not in {name.lower() for name in columns}:
            hint = suggest(column, columns, plural="Columns")
            what = f'"{column}" of the primary key is not a column of the table'
            raise place.error(what, line=1, fix=f"{hint} Fix the name")
    if set(key) != set(source.keys):
        raise place.error(
            f"the primary key ({', '.join(key)}) differs from the keys of {source.table} ({', '.join(source.keys)})",
            line=1,
            fix="Give both the same columns",
        )
    return PostgresTable(name, source.table, text, tuple(columns), tuple(key))
