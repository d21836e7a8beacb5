"""Compute the rows that an entity build resolves, and check their expectations.

If the query only selects columns, the rows are read as Arrow; otherwise Spark computes them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import Observation

from headrace.build.batch_stats import BatchStats
from headrace.build.changes import read_frame
from headrace.build.checked_rows import CheckedRows
from headrace.build.events import expectations_of
from headrace.build.local_inputs import LocalInputs, arrow_of
from headrace.build.plain_query import NotPlainError, PlainQuery, plain_condition, plain_query
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.rows import SparkRows, arrow_rows, collect, union
from headrace.build.work import driver_changes, plan_refresh, recompute_keys
from headrace.iceberg.ledgers.build import CheckedExpectation
from headrace.quality.expectations import Measured, check_results, measure, rows_in
from headrace.spec.model.layers import Query
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Arrived:
    """The accepted rows, the touched keys, the results of the expectations, and the number of checked rows.

    `touched` is None if the rows are merged with the existing ones. With `whole`, they are all rows of the table. `refused` are
    the rows for the quarantine, or None.
    """

    rows: pl.DataFrame
    touched: pl.DataFrame | None
    results: tuple[CheckedExpectation, ...]
    processed: int
    refused: DataFrame | pa.Table | None = None
    whole: bool = False


def rows_to_resolve(inputs: PlannedInputs) -> Arrived:
    """Run the query on all input rows, or on the changed ones.

    Raises QualityError if rows fail an expectation that allows no failures.
    """
    picked = _picked(inputs)
    if picked is not None:
        return picked
    if inputs.plan.action == "refresh":
        return _arrived(inputs, _compute(inputs, plan_refresh(inputs)))
    changes = driver_changes(inputs)
    if changes.only_new:
        return _arrived(inputs, _compute(inputs, measure(inputs.run(changes.rows), expectations_of(inputs.table))))
    keys = recompute_keys(inputs, changes)
    checked = _compute(inputs, keys.measured)
    arrived = _arrived(inputs, checked)
    touched = keys.touched or checked.computed.select(inputs.table.keys)
    parts = [touched] if keys.left is None else [touched, keys.left.select(touched.columns)]
    distinct = union(parts, empty=touched).distinct()
    return replace(arrived, touched=pl.DataFrame(arrow_rows(distinct)), whole=keys.whole)


def _compute(inputs: PlannedInputs, measured: Measured) -> CheckedRows:
    """Compute the rows once, and collect the accepted ones as Arrow: they fit into this process."""
    if isinstance(inputs, LocalInputs):
        return inputs.check(measured)
    observation = Observation()
    observed = replace(measured, rows=measured.rows.observe(observation, *measured.metrics()))
    good = collect(inputs.lake.spark, observed.good)
    results, processed = measured.read_metrics(observation.get), rows_in(observation.get)
    return CheckedRows(SparkRows(measured.rows), good, measured.refused, processed, results, BatchStats())


def _arrived(inputs: PlannedInputs, checked: CheckedRows) -> Arrived:
    check_results(inputs.table, checked.results)
    return Arrived(pl.DataFrame(arrow_of(checked.good)), None, checked.results, checked.processed, checked.refused)


def _picked(inputs: PlannedInputs) -> Arrived | None:
    """Return the query's rows without Spark, or None if Spark must compute them.

    Spark also computes them if a row fails an expectation: the results show such a row in Spark's format.
    """
    table = inputs.table
    expectations = expectations_of(table)
    try:
        query = _plain(inputs)
        conditions = [plain_condition(expectation.that, query.columns) for expectation in expectations]
    except NotPlainError:
        return None
    drivers = {}
    for name in table.drivers:
        rows = _read(inputs, name, query.reads(name))
        if rows is None:
            return None
        drivers[name] = rows
    rows = query.run(drivers)
    if any(not rows.select(condition.fill_null(False).all()).item() for condition in conditions):
        return None
    results = (CheckedExpectation(expected.sentence, expected.on_failure, rows.height, 0) for expected in expectations)
    return Arrived(rows, None, tuple(results), rows.height)


def _read(inputs: PlannedInputs, name: TableName, names: Collection[str]) -> pl.DataFrame | None:
    """Return these columns of the input rows that the build reads, or None if Spark must read them."""
    if isinstance(inputs, LocalInputs):
        return _read_few(inputs, name, names)
    return read_frame(
        inputs.lake.catalog,
        inputs.lake.pipeline,
        name,
        since=None if inputs.plan.action == "refresh" else inputs.plan.since[name],
        until=inputs.plan.until[name],
        columns=[column for column in inputs.lake.columns[name] if column.name in names],
    )


def _read_few(inputs: LocalInputs, name: TableName, names: Collection[str]) -> pl.DataFrame | None:
    """Return these columns of the rows added to an input, or of all rows on a refresh; None if rows were removed."""
    if inputs.plan.action == "refresh":
        return pl.DataFrame(inputs.whole(name).select(list(names)).arrow)
    changes = inputs.changes(name)
    return None if changes.left is not None else pl.DataFrame(arrow_of(changes.entered.select(list(names))))


def _plain(inputs: PlannedInputs) -> PlainQuery:
    """Return the table's query if it only selects columns, with the same types as in Spark's analysis."""
    table, columns = inputs.table, inputs.lake.columns
    if not isinstance(table.source, Query) or table.lookups or table.untracked:
        raise NotPlainError("the table is more than a query over its drivers")
    query = plain_query(table.source.text, {name: columns[name] for name in table.drivers})
    types = {column.name: column.type for column in columns[table.table]}
    if any(types.get(column.name) != column.type for column in query.columns if column.name not in table.except_columns):
        raise NotPlainError("a column has another type in Spark's analysis")
    return query
