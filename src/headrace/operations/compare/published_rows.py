"""Compare a published table with the lake: its columns with the DDL, its build, and every row.

The lake's rows are copied into a temporary table with the types of the DDL. Postgres then compares each value with what
publishing would write now. Decimals keep all their digits in the copy, to report a DDL that rounds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg
from psycopg import IsolationLevel, sql
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, IcebergType

from headrace.iceberg.catalog.tables import count_rows, load_table
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.iceberg.schema.added_columns import hidden_columns
from headrace.serving.publish.incoming import INCOMING, copy_rows
from headrace.serving.publish.postgres_table import PostgresColumn, comparable, list_changes, read_ddl_shape, read_shape
from headrace.serving.publish.publish import explained
from headrace.serving.publish.publish_progress import Progress, read_progress
from headrace.spec.model.pipeline import PostgresTable

_NUMERIC = re.compile(r"numeric\(\d+,(?P<scale>\d+)\)")
_DIFFERENT = sql.Identifier("headrace_different")
EXAMPLES = 5


@dataclass(frozen=True)
class PublishedComparison:
    """The comparison of a Postgres table with the layer table that it is published from.

    `rows` of the lake were compared. `different` rows differ or are on one side only; `columns` has the number of differing
    rows per column. `problems` concern the whole table. `is_current` means that Postgres has the lake's newest build.
    """

    rows: int = 0
    different: int = 0
    columns: tuple[tuple[str, int], ...] = ()
    examples: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_current: bool = True


def compare_published(dsn: str, catalog: Catalog, table: PostgresTable, *, needs_current: bool = False) -> PublishedComparison:
    """Return the differences between a published table and the lake as of now. Read-only.

    With `needs_current`, compare rows only if Postgres has the lake's newest build.
    """
    with explained(table), psycopg.connect(dsn, connect_timeout=10, application_name="headrace verify") as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL timezone = 'UTC'")
                progress = read_progress(cursor, table)
                # Read the lake after Postgres's snapshot: a build in between makes Postgres stale, never ahead.
                source = load_table(catalog, table.source)
                if needs_current and source is not None and not (progress and progress.is_at(source, read_build(source))):
                    return PublishedComparison(is_current=False)
                return _compare(cursor, source, table, progress)
        finally:
            connection.rollback()


def _compare(
    cursor: psycopg.Cursor, source: Table | None, table: PostgresTable, progress: Progress | None
) -> PublishedComparison:
    built = read_build(source)
    if source is None or not built.build_id:
        return PublishedComparison()
    rows = count_rows(source)
    actual = read_shape(cursor, f'"{table.name}"')
    if actual is None:
        problem = f"not found in Postgres: table {table.name}"
        return PublishedComparison(rows, rows, problems=(problem,), is_current=False)
    wanted = read_ddl_shape(cursor, table)
    changes = list_changes(table, actual=actual, wanted=wanted)
    is_current = progress is not None and progress.is_at(source, built)
    position = () if is_current else (_describe_position(progress, source, built),)
    problems = (*position, *(f"{change.problem}: {change.statement};" for change in changes))
    if any(actual.column(name) is None for name in table.primary_key):
        return PublishedComparison(rows, rows, problems=problems, is_current=is_current)
    hidden = hidden_columns(source)
    in_lake = {field.name: field.field_type for field in source.schema().fields if field.name not in hidden}
    rounded = {column.name for column in wanted.columns if _rounds(column, in_lake.get(column.name))}
    columns = [
        (replace(column, type="numeric") if column.name in rounded else column, published)
        for column in wanted.columns
        if column.name in in_lake and not column.generated and (published := actual.column(column.name)) is not None
    ]
    compared = copy_rows(cursor, source, [column for column, _ in columns])
    _find_different(cursor, table, columns)
    different = _count_columns(cursor)
    losses = (
        f'column "{name}" is {in_lake[name]} in the lake and {column.type} in the DDL, which rounds values: change the DDL'
        for name, _ in different
        if name in rounded and (column := wanted.column(name)) is not None
    )
    return PublishedComparison(
        rows=compared,
        different=_count_different(cursor),
        columns=different,
        examples=_describe_rows(cursor, table),
        problems=(*problems, *losses),
        is_current=is_current,
    )


def _rounds(column: PostgresColumn, kind: IcebergType | None) -> bool:
    """Return whether the column has fewer decimals than in the lake."""
    numeric = _NUMERIC.fullmatch(column.type)
    return numeric is not None and isinstance(kind, DecimalType) and kind.scale > int(numeric["scale"])


def _describe_position(progress: Progress | None, source: Table, built: BuildLedger) -> str:
    if progress is None:
        return f"{'.'.join(source.name())} was never published, and the lake has build {built.changed_in}"
    if progress.precedes(source, built):
        return f"Postgres has build {progress.build_id}, and the lake has build {built.changed_in}"
    return f"Postgres has build {progress.build_id} of another history of the table, and the lake has build {built.changed_in}"


def _find_different(
    cursor: psycopg.Cursor, table: PostgresTable, columns: Sequence[tuple[PostgresColumn, PostgresColumn]]
) -> None:
    """Fill a temporary table with the keys of differing rows, their differing columns, and the sides that have them."""
    key = [pair for pair in columns if pair[0].name in table.primary_key]
    values = [pair for pair in columns if pair[0].name not in table.primary_key]

    def side(alias: str, pair: tuple[PostgresColumn, PostgresColumn]) -> sql.Composable:
        types = {column.base_type for column in pair}
        return comparable(alias, pair[0].name, types=types)

    same = sql.SQL(" AND ").join(sql.SQL("{} = {}").format(side("old", pair), side("new", pair)) for pair in key)
    key_column = sql.Identifier(key[0][0].name)
    differs = [
        sql.SQL("CASE WHEN {} IS DISTINCT FROM {} THEN {} END").format(
            side("old", pair), side("new", pair), sql.Literal(pair[0].name)
        )
        for pair in values
    ]
    statement = sql.SQL(
        "CREATE TEMPORARY TABLE {different} ON COMMIT DROP AS SELECT * FROM ("
        " SELECT {keys}, new.{key_column} IS NOT NULL AS in_lake, old.{key_column} IS NOT NULL AS in_postgres,"
        " array_remove(ARRAY[{differs}]::text[], NULL) AS columns"
        " FROM {target} AS old FULL JOIN {incoming} AS new ON {same}"
        ") AS compared WHERE NOT (in_lake AND in_postgres) OR cardinality(columns) > 0"
    ).format(
        different=_DIFFERENT,
        keys=sql.SQL(", ").join(
            sql.SQL("coalesce(new.{0}::text, old.{0}::text) AS {1}").format(
                sql.Identifier(name), sql.Identifier(f"key_{place}")
            )
            for place, name in enumerate(table.primary_key)
        ),
        key_column=key_column,
        differs=sql.SQL(", ").join(differs),
        target=sql.Identifier(table.name),
        incoming=INCOMING,
        same=same,
    )
    cursor.execute(statement)


def _count_different(cursor: psycopg.Cursor) -> int:
    row = cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(_DIFFERENT)).fetchone()
    assert row is not None
    return int(row[0])


def _count_columns(cursor: psycopg.Cursor) -> tuple[tuple[str, int], ...]:
    statement = sql.SQL(
        "SELECT name, count(*) FROM {} CROSS JOIN unnest(columns) AS name WHERE in_lake AND in_postgres"
        " GROUP BY name ORDER BY name"
    )
    return tuple((str(name), int(count)) for name, count in cursor.execute(statement.format(_DIFFERENT)).fetchall())


def _describe_rows(cursor: psycopg.Cursor, table: PostgresTable) -> tuple[str, ...]:
    keys = sql.SQL(", ").join(sql.Identifier(f"key_{place}") for place in range(len(table.primary_key)))
    statement = sql.SQL("SELECT in_lake, in_postgres, columns, {keys} FROM {different} ORDER BY {keys} LIMIT {limit}")
    cursor.execute(statement.format(keys=keys, different=_DIFFERENT, limit=sql.Literal(EXAMPLES)))
    lines = []
    for in_lake, in_postgres, columns, *key in cursor.fetchall():
        row = ", ".join(f"{name} {value}" for name, value in zip(table.primary_key, key, strict=True))
        what = ", ".join(columns) if in_lake and in_postgres else f"only in {'the lake' if in_lake else 'Postgres'}"
        lines.append(f"{row}: {what}")
    return tuple(lines)
