"""Count the rows that a layer table holds now and that fail its expectations, without Spark."""

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
    """Return by expectation how many rows of the table as it is now fail it; None where only Spark can tell.

    Rows that a build drops, quarantines or fails because of are never in the table, so only kept rows are searched.
    """
    failing: dict[str, int | None] = {each.sentence: 0 for each in table.expectations}
    kept = [each for each in table.expectations if each.otherwise == "count"]
    if stored is None or stored.current_snapshot() is None or not kept:
        return failing
    with open_duckdb(storage=Storage.of(stored.io.properties)) as connection:
        connection.execute(f"SET memory_limit = {quote_text(_MEMORY)}")
        source = f"iceberg_scan({quote_text(stored.metadata_location)})"
        conditions = dict(_translate(table, kept))
        counts = _count(connection, source, list(conditions.values()))
        for sentence, count in zip(conditions, counts, strict=True):
            failing[sentence] = count
        failing.update({each.sentence: None for each in kept if each.sentence not in conditions})
    return failing


def _translate(table: LayerTable, expectations: list[Expectation]) -> Iterator[tuple[str, str]]:
    """Yield each expectation's condition as DuckDB says it; those that mean something else there are left out."""
    for each in expectations:
        if differences(replace(table, source=Query(each.that, ()))):
            continue
        try:
            yield each.sentence, condition_sql(table, each.that, line=each.line, dialect="duckdb")
        except SpecError:
            continue


def _count(connection: duckdb.DuckDBPyConnection, source: str, conditions: list[str]) -> list[int | None]:
    """Return how many rows fail each condition, in one pass if DuckDB can read all conditions."""
    if not conditions:
        return []
    failed = ", ".join(f"count(*) FILTER (WHERE NOT coalesce(CAST(({each}) AS BOOLEAN), false))" for each in conditions)
    try:
        found = connection.execute(f"SELECT {failed} FROM {source}").fetchone()
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException, duckdb.InvalidInputException):
        if len(conditions) == 1:
            return [None]
        return [count for each in conditions for count in _count(connection, source, [each])]
    assert found is not None
    return [int(count) for count in found]
