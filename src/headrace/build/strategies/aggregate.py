"""Build aggregates: add changed rows to the stored states of their keys, or recompute the touched keys."""

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
"""A small build recomputes keys with at most this many driver rows instead of merging states."""

_HAVING = re.compile(r"\bhaving\b", re.IGNORECASE)


class Aggregate(IncrementalStrategy):
    """Computes every row from all driver rows with its key."""

    def describe(self, plan: TablePlan) -> str:
        """Describe the builds. Only a build knows the types, which determine whether states are stored."""
        may_add = plan.has_states or not plan.entry.build_id
        if may_add and not isinstance(decompose(plan.table), Recomputed):
            return "adds changed rows to the stored states of their keys; recomputes keys with few rows"
        return "recomputes touched keys from all of their driver rows"

    def check_query(
        self, spark: SparkSession, table: LayerTable, columns: Mapping[TableName, Sequence[Column]]
    ) -> SpecError | None:
        """Return the error for a HAVING over values without storable states: a build could not recompute hidden keys."""
        if not isinstance(table.source, Query) or not _HAVING.search(table.source.text):
            return None
        shape, algebra = decompose(table), find_algebra(spark, table, columns)
        if isinstance(shape, Decomposition) and shape.having and isinstance(algebra, Recomputed):
            return table.error(
                f"HAVING is not supported, because the table's keys must be recomputed: {algebra.reason}",
                at="keys",
                fix="Filter in a downstream table, or set kind: full",
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
                with suppress(NotLocalError):  # keys with far more rows than the average
                    return recompute(inputs, changes, self.reduce_events)
            merged = merge_changes(inputs, inputs.algebra, changes.sets)
            if merged is not None:
                expectations, hidden = expectations_of(inputs.table), inputs.state_columns
                measured = measure(merged.rows, expectations, hidden=(REDO,), unshown=hidden)
                return Work(
                    ComputedKeys(measured, merged.touched),
                    lambda rows, *_: rows,
                    again=lambda: recompute(inputs, changes, self.reduce_events),
                )
        return recompute(inputs, changes, self.reduce_events)


def _have_few_rows(inputs: PlannedInputs, changes: DriverChanges) -> bool:
    """Return whether the touched keys have few rows, estimated with the average from metadata.

    If so, one query over these rows costs less than the queries that compute, merge and read states.
    """
    plan = inputs.plan
    counts = [rows.arrow.num_rows for rows in changes.rows.values() if isinstance(rows, LocalRows)]
    rows = sum(plan.until[name].rows for name in plan.table.drivers)
    return len(counts) == len(changes.rows) and sum(counts) * rows <= FEW_ROWS_OF_KEYS * plan.rows


def _read_by_keys(read: Read, table: LayerTable, known: StoredColumns) -> Read:
    """Return the read with the driver's lookup columns for touched keys, or the reason why there are none."""
    keys = driver_keys(known, table, read.table)
    times = {source.columns[0]: _describe_time(source) for source in time_keys(known, table, read.table)}
    columns = {**keys, **times}
    if not isinstance(table.source, Query):
        return replace(read, whole="a Python function may read any of its rows")
    if not columns:
        return replace(read, whole="no key is one of its plain columns or a truncated time")
    return replace(read, columns=tuple(columns), values=f"the touched {', '.join(columns.values())}")


def _describe_time(source: KeySource) -> str:
    return f"{source.key} (the {(source.unit or '').lower()} of {source.columns[0]})"
