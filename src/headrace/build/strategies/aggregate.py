"""Add changed rows to the stored states of their keys, or compute the touched keys again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.build.access import driver_keys, time_keys
from headrace.build.aggregates.algebra import find_algebra
from headrace.build.aggregates.increment import merge_changes
from headrace.build.aggregates.states import REDO
from headrace.build.events import expectations_of
from headrace.build.merge_keys import merge_keys
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import NotLocalError, PlannedInputs
from headrace.build.pruning import KeySource, same_key
from headrace.build.reads import Read, StoredColumns
from headrace.build.rows import LocalRows
from headrace.build.staged_build import StagedBuild
from headrace.build.strategies.strategy import IncrementalStrategy
from headrace.build.work import ComputedKeys, DriverChanges, Work, driver_changes, recompute
from headrace.errors import SpecError
from headrace.quality.expectations import measure
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column
from headrace.spec.sql.aggregates import Decomposition, Recomputed, decompose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_ROWS_OF_KEYS = 5_000
"""How many rows of drivers a small build of an aggregate reads rather than merge states."""

_HAVING = re.compile(r"\bhaving\b", re.IGNORECASE)


class Aggregate(IncrementalStrategy):
    """Every row is computed from all rows of the drivers that have its key."""

    def describe(self, plan: TablePlan) -> str:
        """Return how the table is kept up to date. Only a build knows types, and stores states where these allow it."""
        may_add = plan.has_states or not plan.entry.build_id
        if may_add and not isinstance(decompose(plan.table), Recomputed):
            return "adds changed rows to the stored states of their keys; keys with few rows are computed again from these"
        return "computes touched keys again, from all rows of its drivers that have them"

    def check_query(
        self, spark: SparkSession, table: LayerTable, columns: Mapping[TableName, Sequence[Column]]
    ) -> SpecError | None:
        """Return the error for a HAVING over values whose states can't be stored: its keys would have to be recomputed."""
        if not isinstance(table.source, Query) or not _HAVING.search(table.source.text):
            return None
        shape, algebra = decompose(table), find_algebra(spark, table, columns)
        if isinstance(shape, Decomposition) and shape.having and isinstance(algebra, Recomputed):
            return table.error(
                f"HAVING hides keys from a build that recomputes them, and they can't be added up: {algebra.reason}",
                at="keys",
                fix="Filter in the table that reads this one, or write kind: full",
            )
        return None

    def driver_read(self, read: Read, plan: TablePlan, pipeline: Pipeline, known: StoredColumns) -> Read:
        if same_key(plan.table, pipeline) or not known.has_inputs(plan.table):
            return read
        return _read_by_keys(read, plan.table, known)

    def increment(self, inputs: PlannedInputs, build_id: int) -> StagedBuild:
        return merge_keys(inputs, self._plan(inputs), build_id)

    def _plan(self, inputs: PlannedInputs) -> Work:
        changes = driver_changes(inputs)
        if inputs.algebra and not any(map(inputs.moved, inputs.table.follows)):
            if _have_few_rows(inputs, changes):
                with suppress(NotLocalError):  # keys that have far more rows than the average
                    return recompute(inputs, changes, self.settle)
            merged = merge_changes(inputs, inputs.algebra, changes.sets)
            if merged is not None:
                expectations, unshown = expectations_of(inputs.table), inputs.state_columns
                measured = measure(merged.rows, expectations, hidden=(REDO,), unshown=unshown)
                return Work(
                    ComputedKeys(measured, merged.touched),
                    lambda rows, *_: rows,
                    again=lambda: recompute(inputs, changes, self.settle),
                )
        return recompute(inputs, changes, self.settle)


def _have_few_rows(inputs: PlannedInputs, changes: DriverChanges) -> bool:
    """Return whether the keys that few changed rows touch have few rows, by the averages that metadata tells.

    Then one query over these rows costs less than the queries that compute, merge and read states.
    """
    plan = inputs.plan
    counts = [rows.arrow.num_rows for rows in changes.rows.values() if isinstance(rows, LocalRows)]
    rows = sum(plan.until[name].rows for name in plan.table.drivers)
    return len(counts) == len(changes.rows) and sum(counts) * rows <= FEW_ROWS_OF_KEYS * plan.rows


def _read_by_keys(read: Read, table: LayerTable, known: StoredColumns) -> Read:
    """Return the read with the columns of a driver by which rows of touched keys are found, or why they can't be."""
    keys = driver_keys(known, table, read.table)
    times = {source.columns[0]: _time_in_words(source) for source in time_keys(known, table, read.table)}
    columns = {**keys, **times}
    if not isinstance(table.source, Query):
        return replace(read, whole="a Python function may read any row of it")
    if not columns:
        return replace(read, whole="no column of it is a key as it stands, or a time that is cut to one")
    return replace(read, columns=tuple(columns), values=f"the touched {', '.join(columns.values())}")


def _time_in_words(source: KeySource) -> str:
    return f"{source.key} (the {(source.unit or '').lower()} of {source.columns[0]})"
