"""Determine the work of a keyed table's build: the rows of the touched keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.build.aggregates.increment import run_with_states
from headrace.build.batch_stats import BatchStats
from headrace.build.events import expectations_of, split_truncates, truncate_columns, truncates
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.pruning import driver_decides, same_key
from headrace.build.rows import ChangeSet, Rows, union
from headrace.build.touched_rows import moved_lookups, touched_by_lookups
from headrace.quality.expectations import Measured, measure
from headrace.spark.prepared_queries import derive
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Decide = Callable[["DataFrame", "DataFrame", BatchStats], "DataFrame"]


class ReduceEvents(Protocol):
    """Reduce events, as returned by `mark_events`, to the table's rows. With `fill_omitted`, omitted values are filled in."""

    def __call__(
        self, table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, fill_omitted: bool
    ) -> DataFrame: ...


@dataclass(frozen=True)
class ComputedKeys:
    """Measured rows, and the touched keys.

    `touched` has the keys and the constant columns. Without it, the keys of the rows and of `left` are touched; with `whole`,
    or if a truncate is among the rows, all keys of the table are.
    """

    measured: Measured
    touched: Rows | None = None
    left: Rows | None = None
    whole: bool = False


@dataclass(frozen=True)
class Work:
    """Rows of touched keys, and the function that computes the keys' new rows from these and the old rows.

    `decide` takes the accepted rows of `mark_events`, the table's old rows with `_tombstone`, and the batch statistics, and
    returns the new rows of the touched keys. With `meets_old`, the old rows compete with the new ones; otherwise the new rows
    replace them. `again` returns the alternative work for keys whose states can't be merged, which the computed rows mark.
    """

    keys: ComputedKeys
    decide: Decide
    meets_old: bool = False
    again: Callable[[], Work] | None = None


@dataclass(frozen=True)
class DriverChanges:
    """The changes of a table's drivers since its last build.

    `rows` entered a driver, or a changed lookup touches them (`looked_up`); `left` were removed.
    """

    sets: Mapping[TableName, ChangeSet]
    rows: Mapping[TableName, Rows]
    left: Mapping[TableName, Rows]
    looked_up: Mapping[TableName, Sequence[Rows]]

    @property
    def only_new(self) -> bool:
        """Whether all changed rows entered a driver, and none left."""
        return not self.left and not self.looked_up


def driver_changes(inputs: PlannedInputs) -> DriverChanges:
    """Return the driver rows that an increment must process."""
    drivers = inputs.table.drivers
    sets = {name: inputs.changes(name) for name in drivers if inputs.moved(name)}
    left = {name: changes.left for name, changes in sets.items() if changes.left is not None}
    looked_up = touched_by_lookups(inputs)
    rows: dict[TableName, Rows] = {}
    for name in drivers:
        parts = [sets[name].entered] if name in sets else []
        rows[name] = union([*parts, *looked_up.get(name, [])], empty=inputs.none(name))
    return DriverChanges(sets, rows, left, looked_up)


def plan_refresh(inputs: PlannedInputs) -> Measured:
    """Return all rows of the table's query on its inputs at the plan's states."""
    rows = run_with_states(inputs, {name: inputs.whole(name) for name in inputs.table.drivers})
    return measure(rows, expectations_of(inputs.table), unshown=inputs.state_columns)


def reduce_rows(table: LayerTable, marked: DataFrame, reduce_events: ReduceEvents) -> DataFrame:
    """Reduce all events of a table, as returned by `mark_events`, to the table's rows."""
    events, truncated = split_truncates(table, marked)
    return reduce_events(table, events, () if truncated is None else (truncated,), fill_omitted=table.unchanged is not None)


def recompute(inputs: PlannedInputs, changes: DriverChanges, reduce_events: ReduceEvents) -> Work:
    """Return the work of recomputing all rows of the touched keys from the inputs."""
    table, keys = inputs.table, recompute_keys(inputs, changes)
    if keys.whole:
        return Work(keys, lambda rows, *_: reduce_rows(table, rows, reduce_events))

    def decide(rows: DataFrame, *_: object) -> DataFrame:
        events, _truncated = split_truncates(table, rows)
        recorded = recorded_truncates(inputs)
        return reduce_events(table, events, () if recorded is None else (recorded,), fill_omitted=table.unchanged is not None)

    return Work(keys, decide)


def recompute_keys(inputs: PlannedInputs, changes: DriverChanges) -> ComputedKeys:
    """Compute all rows of the touched keys from the inputs. A truncate touches all keys.

    The keys of removed rows, and of `looked_up` rows if a lookup can affect keys, are computed with the lookups of the last
    build: a row may have had another key then, and none now.
    """
    table, looked_up = inputs.table, changes.looked_up
    past = moved_lookups(inputs) if looked_up and not driver_decides(table) else ()
    if past is None or (table.apply_as_truncates and not _find_truncates(inputs, changes.rows).is_empty):
        return ComputedKeys(plan_refresh(inputs), whole=True)
    left = changes.left
    older = {
        name: [*([left[name]] if name in left else ()), *(looked_up.get(name, ()) if past else ())] for name in changes.rows
    }
    rows_before = {name: union(rows, empty=inputs.none(name)) for name, rows in older.items()} if any(older.values()) else None
    gone = None if rows_before is None else inputs.keys(rows_before, past=past)
    if same_key(table, inputs.lake.pipeline) and not table.reread and inputs.algebra is None:  # HAVING may hide touched keys
        return ComputedKeys(measure(inputs.run(changes.rows), expectations_of(table)), left=gone)
    touched = inputs.keys(changes.rows)
    touched = touched if gone is None else union([touched, gone], empty=touched).distinct()
    near = {name: inputs.near(name, touched) for name in table.drivers}
    rows = inputs.keep_touched(run_with_states(inputs, near), touched)
    return ComputedKeys(measure(rows, expectations_of(table), unshown=inputs.state_columns), touched)


def _find_truncates(inputs: PlannedInputs, drivers: Mapping[TableName, Rows]) -> Rows:
    table = inputs.table
    return inputs.once(derive(inputs.run(drivers), "truncates", lambda rows: rows.where(truncates(table))))


def recorded_truncates(inputs: PlannedInputs) -> DataFrame | None:
    """Return the truncates that earlier builds recorded, or None if there are none."""
    table, lake, entry = inputs.table, inputs.lake, inputs.plan.entry
    if entry.truncated_at is None:
        return None
    columns = tuple(column for column in lake.columns[table.table] if column.name in truncate_columns(table))
    return inputs.recorded_truncates(columns)
