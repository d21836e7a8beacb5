"""Count the current rows of a layer table that fail its expectations, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import duckdb
from pyiceberg.table import Table

from headrace.errors import SpecError
from headrace.export.dbt_models import condition_sql, differences
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.rows.duck import open_duckdb, quote_text
from headrace.spec.model.layers import Expectation, LayerTable, Query

_MEMORY = "512MB"


def count_failing(table: LayerTable, stored: Table | None) -> Mapping[str, int | None]:
    """Return the number of current rows that fail each expectation; None if only Spark can evaluate it.

    Only `warn` expectations are evaluated: rows that fail any other kind are never in the table.
    """
    failing: dict[str, int | None] = {expectation.sentence: 0 for expectation in table.expectations}
    counted = [expectation for expectation in table.expectations if expectation.on_failure == "warn"]
    if stored is None or stored.current_snapshot() is None or not counted:
        return failing
    with open_duckdb(storage=Storage.of(stored.io.properties)) as connection:
        connection.execute(f"SET memory_limit = {quote_text(_MEMORY)}")
        source = f"iceberg_scan({quote_text(stored.metadata_location)})"
        conditions = dict(_translate(table, counted))
        counts = _count(connection, source, list(conditions.values()))
        for sentence, count in zip(conditions, counts, strict=True):
            failing[sentence] = count
        failing.update({expectation.sentence: None for expectation in counted if expectation.sentence not in conditions})
    return failing


def _translate(table: LayerTable, expectations: list[Expectation]) -> Iterator[tuple[str, str]]:
    """Yield each expectation's condition in DuckDB's SQL. Conditions with another meaning in DuckDB are skipped."""
    for expectation in expectations:
        if differences(replace(table, source=Query(expectation.that, ()))):
            continue
        try:
            yield expectation.sentence, condition_sql(table, expectation.that, line=expectation.line, dialect="duckdb")
        except SpecError:
            continue


def _count(connection: duckdb.DuckDBPyConnection, source: str, conditions: list[str]) -> list[int | None]:
    """Return how many rows fail each condition, in one pass if DuckDB can evaluate all conditions."""
    if not conditions:
        return []
    failed = ", ".join(
        f"count(*) FILTER (WHERE NOT coalesce(CAST(({condition}) AS BOOLEAN), false))" for condition in conditions
    )
    try:
        row = connection.execute(f"SELECT {failed} FROM {source}").fetchone()
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException, duckdb.InvalidInputException):
        if len(conditions) == 1:
            return [None]
        return [count for condition in conditions for count in _count(connection, source, [condition])]
    assert row is not None
    return [int(count) for count in row]
