"""Update an aggregate incrementally: compute the states of added and removed rows, and merge them with the stored states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.aggregates.algebra import Algebra
from headrace.build.aggregates.states import REDO, merge_states, rows_of_states, with_state
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.rows import ChangeSet, LocalRows, Rows, union
from headrace.spark.prepared_queries import derive
from headrace.spec.model.layers import STATE, LayerTable
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class MergedKeys:
    """The touched keys and their new rows, with states.

    A row with `__redo` marks a key that must be recomputed from its rows.
    """

    rows: DataFrame
    touched: Rows


def run_with_states(inputs: PlannedInputs, drivers: Mapping[TableName, Rows]) -> DataFrame:
    """Run the table's query on these driver rows; for an aggregate with states, compute the states in the same pass."""
    groups, algebra = inputs.run_groups(drivers), inputs.algebra
    return groups if algebra is None else derive(groups, ("states", algebra.shape), lambda rows: with_state(algebra, rows))


def merge_changes(inputs: PlannedInputs, algebra: Algebra, changes: Mapping[TableName, ChangeSet]) -> MergedKeys | None:
    """Return the rows of all touched keys, or None if the rows that were removed from a driver are unknown.

    Only changed rows of drivers are read.
    """
    exact = {name: _exact(inputs, name, change) for name, change in changes.items()}
    if any(change is None for change in exact.values()):
        return None
    known = {name: change for name, change in exact.items() if change is not None}
    drivers = inputs.table.drivers
    entered = {name: known[name].entered if name in known else inputs.none(name) for name in drivers}
    left = {name: change.left for name, change in known.items() if change.left is not None}
    added = inputs.once(inputs.run_groups(entered))
    departed = {name: left[name] if name in left else inputs.none(name) for name in drivers}
    removed = inputs.once(inputs.run_groups(departed)) if left else None
    names = list(dict.fromkeys((*inputs.table.keys, *inputs.table.constant)))
    touched = union([part.select(names) for part in (added, removed) if part is not None], empty=added.select(names))
    with inputs.old_rows(touched, [*inputs.table.keys, STATE]) as old:
        knows_all = not algebra.having and not _hides_rows(inputs.table)

        def merge(old: DataFrame, added: DataFrame, removed: DataFrame | None = None) -> DataFrame:
            return rows_of_states(algebra, merge_states(algebra, old=old, added=added, removed=removed, knows_all=knows_all))

        changed = [inputs.frame("added", added), *(() if removed is None else (inputs.frame("removed", removed),))]
        rows = derive(inputs.frame("old", old.rows), ("merge", algebra.shape, knows_all), merge, *changed)
        if not isinstance(old.rows, LocalRows):  # scanned files are only readable within the block
            rows = inputs.once(rows.coalesce(1) if inputs.changes_few else rows).frame
            rows.count()
    return MergedKeys(rows, touched)


def has_redo(computed: Rows) -> bool:
    """Return whether a key among the merged rows must be recomputed."""
    if isinstance(computed, LocalRows):
        return bool(pc.any(computed.arrow[REDO]).as_py())
    return not computed.frame.where(F.col(REDO)).isEmpty()


def _exact(inputs: PlannedInputs, name: TableName, change: ChangeSet) -> ChangeSet | None:
    """Return the net change of a driver since the last build: the rows added, and the rows removed.

    A driver's record of removed rows may contain rows that this table never read, because they were added and removed in
    between, and rows that still exist, because a build crashed. So it only determines the keys to compare between the two
    states.
    """
    if change.left is None or change.left.is_empty:
        return ChangeSet(change.entered)
    driver = next((table for table in inputs.lake.pipeline.tables if table.table == name), None)
    if driver is None or not driver.keys or not inputs.knows_past(name):
        return None
    keys = change.left.select(driver.row_key)
    near = change.left.select([column for column in driver.constant if column in change.left.columns])
    entered = union([change.entered, inputs.unchanged(name, keys, near=near)], empty=change.entered)
    return ChangeSet(entered, inputs.matching(name, keys, past=True, near=near))


def _hides_rows(table: LayerTable) -> bool:
    return any(expectation.on_failure in ("drop", "quarantine") for expectation in table.expectations)
