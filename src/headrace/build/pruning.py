"""Prune a driver to the rows that may have a touched key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType, DateType, StringType, TimestampType

from headrace.spark.columns import named
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.problems import Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from sqlglot import exp

_MOST_RANGES = 32
_DAY = "DAY"
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


@dataclass(frozen=True)
class KeySource:
    """A key that is a driver column, or a driver's time truncated to a unit. Several columns are coalesced."""

    key: str
    columns: tuple[str, ...]
    unit: str | None


def same_key(table: LayerTable, pipeline: Pipeline) -> bool:
    """Return whether every row of the table comes from one row of its driver, so that a build needs only changed rows."""
    if len(table.drivers) != 1 or not isinstance(table.source, Query):
        return False
    driver = next((candidate for candidate in pipeline.tables if candidate.table == table.drivers[0]), None)
    if driver is None or not driver.keys or driver.traits.keeps_versions:
        return False
    plain = {source.key: source.columns for source in key_sources(table) if source.unit is None}
    return all(plain.get(key) == (key,) for key in driver.keys)


def driver_decides(table: LayerTable) -> bool:
    """Return whether a driver row alone determines its keys: no lookup can change, add or hide one."""
    from sqlglot import exp

    tree = _plain_select(table)
    if tree is None or any(tree.args.get(name) for name in ("laterals", "qualify", "limit", "having")):
        return False
    driver, joins, where = tree.args["from_"].this.alias_or_name, tree.args.get("joins") or [], tree.args.get("where")
    keeps_all = all(join.side == "LEFT" and join.kind not in ("SEMI", "ANTI") for join in joins)
    if not keeps_all or not {*table.keys} <= {source.key for source in key_sources(table)}:
        return False
    columns = [] if where is None else [*where.find_all(exp.Column)]
    return not (where and where.find(exp.Query)) and all(column.table == driver or not joins for column in columns)


def key_sources(table: LayerTable) -> tuple[KeySource, ...]:
    """Return the keys that a plain SELECT over the driver takes from its columns."""
    tree = _plain_select(table)
    if tree is None:
        return ()
    source = tree.args["from_"].this
    sources = []
    for projection in tree.expressions:
        if projection.alias_or_name in table.keys:
            key = _source_of(projection.alias_or_name, projection.unalias(), source.alias_or_name, joins="joins" in tree.args)
            if key:
                sources.append(key)
    return tuple(sources)


def with_keys_near(driver: DataFrame, table: LayerTable, touched: DataFrame) -> DataFrame:
    """Return the driver's rows that may have a touched key, judging by the ranges of their columns.

    All rows with a touched key are included; others may be. Files without such values are not opened.
    """
    for key in key_sources(table):
        if not set(key.columns) <= set(driver.columns):
            continue
        condition = _near(driver, key, touched)
        if condition is not None:
            driver = driver.where(condition)
    return driver


def _plain_select(table: LayerTable) -> exp.Select | None:
    """Return the table's query if it is a SELECT directly from the driver."""
    from sqlglot import exp

    if not isinstance(table.source, Query):
        return None
    tree = _parse(table.source.text, table.place)
    from_ = tree.args.get("from_")
    source = from_.this if from_ else None
    return tree if isinstance(tree, exp.Select) and isinstance(source, exp.Table) and source.db else None


@lru_cache(maxsize=256)
def _parse(text: str, place: Place) -> exp.Expr:
    """Return a query's syntax tree, cached because every build needs it. Don't modify it."""
    from headrace.spec.sql.queries import parse_query

    return parse_query(text, place=place).tree


def _near(driver: DataFrame, key: KeySource, touched: DataFrame) -> Column | None:
    kind = driver.schema[key.columns[0]].dataType
    value = named(key.key)
    if key.unit is None:
        if not isinstance(kind, AtomicType) or isinstance(kind, StringType):
            return None
        start = end = value
    elif isinstance(kind, (TimestampType, DateType)):
        start = F.date_trunc(key.unit.lower(), value.cast("timestamp"))
        end = start + F.expr(f"INTERVAL 1 {key.unit}" if key.unit != "QUARTER" else "INTERVAL 3 MONTH")
    else:
        return None
    ranges = touched.select(start.cast("string").alias("start"), end.cast("string").alias("end")).distinct()
    rows = ranges.limit(_MOST_RANGES + 1).collect()
    if len(rows) > _MOST_RANGES:
        return None
    condition = F.lit(False)
    for column in (named(name) for name in key.columns):
        for row in rows:
            if row["start"] is None:
                part = column.isNull()
            elif key.unit is None:
                part = column == F.lit(row["start"]).cast(kind)
            else:
                part = (column >= F.lit(row["start"]).cast(kind)) & (column <= F.lit(row["end"]).cast(kind))
            condition = condition | part
    return condition


def _source_of(key: str, expression: exp.Expr, driver: str, *, joins: bool) -> KeySource | None:
    from sqlglot import exp

    if isinstance(expression, exp.Column):
        if expression.table not in ("", driver) or (joins and not expression.table):
            return None
        return KeySource(key, (expression.name,), None)
    unit = _unit_of(expression)
    if unit:
        inner = expression.this
        parts: list[exp.Expr] = [inner.this, *inner.expressions] if isinstance(inner, exp.Coalesce) else [inner]
        sources = [_source_of(key, part, driver, joins=joins) for part in parts if isinstance(part, exp.Column)]
        columns = tuple(name for source in sources if source for name in source.columns)
        return KeySource(key, columns, unit) if len(columns) == len(parts) else None
    return None


def _unit_of(expression: exp.Expr) -> str | None:
    """Return the unit to which an expression truncates a time."""
    from sqlglot import exp

    if isinstance(expression, exp.Cast) and expression.to.is_type("date"):
        return _DAY
    if isinstance(expression, (exp.TsOrDsToDate, exp.Date)):
        return _DAY
    if isinstance(expression, (exp.TimestampTrunc, exp.DateTrunc)):
        unit = str(expression.args["unit"].name).upper()
        return unit if unit in _UNITS else None
    return None
