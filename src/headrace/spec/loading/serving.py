"""What a pipeline serves, as pipeline.yml has it: `serving: {postgres: {weather: {from: …, ddl: …}}, pages: …}`."""

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
"""The table of Postgres that says how far each other one has come."""


def read_serving(section: Section, *, files: Files, tables: Sequence[LayerTable], problems: Problems) -> Serving:
    """Return what the pipeline serves; mistakes are kept as problems."""
    value = section.find(KEY)
    found = value and problems.attempt(value.section, ("postgres", "pages"), problems=problems)
    if not found:
        return Serving()
    written = found.find("postgres")
    inner = written and problems.attempt(written.section, None, problems=problems)
    each = [_read_table(one, files=files, tables=tables, problems=problems) for one in (inner.values.values() if inner else ())]
    pages = found.find("pages")
    return Serving(
        tuple(table for table in each if table is not None),
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
        raise value.key_error(f"\"{value.key}\" can't be a table's name here", fix=f"Use {IDENTIFIER_RULE}")
    return True


def _find_source(section: Section, tables: Sequence[LayerTable]) -> LayerTable:
    value = section.need("from", example="default.weather_by_minute")
    name = parse_table_name(value.text(), value)
    found = next((each for each in tables if each.table == name), None)
    if found is None:
        hint = suggest(str(name), [str(each.table) for each in tables], plural="Layer tables")
        raise value.error(f'"{name}" is no layer table of this pipeline', fix=f"{hint} Fix the name")
    if not found.keys or found.kind == "history":
        raise value.error(
            f"{name} is of kind {found.kind}, which has not one row for each key",
            fix="Publish a table of kind upsert, aggregate or features",
        )
    return found


def _read_ddl(name: str, source: LayerTable, path: Path, place: Place) -> PostgresTable:
    """Return the table that the file makes: one CREATE TABLE with a primary key, and what comes after it."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    text = read_text(path, place=place)
    try:
        statements = [each for each in sqlglot.parse(text, dialect=DIALECT) if each is not None]
    except SqlglotError as error:
        raise place.error(f"not valid SQL of Postgres: {str(error).splitlines()[0]}", line=1, fix="Fix it") from None
    except RecursionError:
        raise place.error("the file is nested too deeply", line=1, fix="Write it with fewer levels") from None
    made = [each for each in statements if isinstance(each, exp.Create)]
    first = made[0] if made and isinstance(made[0].this, exp.Schema) else None
    if first is None or len(made) != len(statements) or any(each.kind not in ("TABLE", "INDEX") for each in made):
        fix = "Write CREATE TABLE first, and CREATE INDEX after it"
        raise place.error("a published table is made by CREATE TABLE and CREATE INDEX alone", line=1, fix=fix)
    if first.this.this.name != name or first.this.this.db or len([each for each in made if each.kind == "TABLE"]) > 1:
        what = f'it makes the table "{first.this.this.sql()}", and pipeline.yml calls it "{name}"'
        raise place.error(what, line=1, fix="Make one table of that name")
    columns = {each.name: each for each in first.this.expressions if isinstance(each, exp.ColumnDef)}
    key = [each.name for found in first.find_all(exp.PrimaryKey) for each in found.expressions]
    key += [each.name for each in columns.values() if each.find(exp.PrimaryKeyColumnConstraint)]
    for column in key:
        if column.lower() not in {each.lower() for each in columns}:
            hint = suggest(column, columns, plural="Columns")
            what = f'"{column}" of the primary key is not a column of the table'
            raise place.error(what, line=1, fix=f"{hint} Fix the name")
    if set(key) != set(source.keys):
        raise place.error(
            f"the primary key is ({', '.join(key)}), and {source.table} has the keys ({', '.join(source.keys)})",
            line=1,
            fix="Give both the same columns",
        )
    return PostgresTable(name, source.table, text, tuple(columns), tuple(key))
