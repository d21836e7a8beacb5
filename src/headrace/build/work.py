"""What a build of a keyed table has to compute: the rows of the keys that a change touches, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.aggregates.increment import merge_changes, run_with_states
from headrace.build.aggregates.states import REDO
from headrace.build.carry import carry_values, events_of_rows, without_carried
from headrace.build.events import EPOCH, expectations_of, split_truncates, truncate_columns, truncates, with_epochs
from headrace.build.glance import Glance
from headrace.build.planned_inputs import NotLocalError, PlannedInputs
from headrace.build.pruning import driver_decides, same_key
from headrace.build.removed import DELETED
from headrace.build.rows import LocalRows, Rows, union
from headrace.build.touched_rows import moved_lookups, touched_by_lookups
from headrace.build.versions import ORDER, history_of_keys, newest_of_keys, one_of_keys
from headrace.quality.expectations import Measured, measure
from headrace.spec.layers import HISTORY_COLUMNS, LayerTable
from headrace.spec.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_ROWS_OF_KEYS = 5_000
"""How many rows of drivers a small build of an aggregate reads rather than merge states."""

Decide = Callable[["DataFrame", "DataFrame", Glance], "DataFrame"]


@dataclass(frozen=True)
class Work:
    """Measured rows, the keys that are touched, and how rows and the old ones of these keys become the new ones.

    `touched` has the keys and the constant columns. Without it, the keys of the rows themselves are touched, and those in
    `left`; with `whole`, or where a truncate is among the rows, all keys of the table are. `decide` takes the rows that passed,
    as `mark_events` leaves them, the table's old rows with `_tombstone`, and a glance at the rows, and returns the rows that
    the touched keys shall have. With `meets_old`, the old rows compete with the new ones; else these replace them. `again` is
    the work to do instead where states of a touched key can't be merged, which the computed rows tell.
    """

    measured: Measured
    touched: Rows | None
    decide: Decide
    whole: bool = False
    left: Rows | None = None
    meets_old: bool = False
    again: Callable[[], Work] | None = None


def plan_increment(inputs: PlannedInputs) -> Work:
    """Return what an increment of the table has to do."""
    table = inputs.table
    if table.kind == "features":
        return _features(inputs)
    changes = {name: inputs.changes(name) for name in table.drivers if inputs.moved(name)}
    left = {name: each.left for name, each in changes.items() if each.left is not None}
    looked_up = touched_by_lookups(inputs)
    changed: dict[TableName, Rows] = {}
    for name in table.drivers:
        parts = [changes[name].entered] if name in changes else []
        changed[name] = union([*parts, *looked_up.get(name, [])], empty=inputs.none(name))
    only_new = not left and not looked_up
    if only_new and table.kind in ("upsert", "history", "entities") and not table.untracked:
        rows = measure(inputs.run(changed), expectations_of(table))
        return Work(rows, None, _merger(inputs), meets_old=True)
    if inputs.algebra and not any(map(inputs.moved, table.follows)):
        if _have_few_rows(inputs, changed):
            with suppress(NotLocalError):  # keys that have far more rows than the average
                return _recompute(inputs, changed, left, looked_up)
        merged = merge_changes(inputs, inputs.algebra, changes)
        if merged is not None:
            measured = measure(merged.rows, expectations_of(table), hidden=(REDO,))
            return Work(
                measured, merged.touched, lambda rows, *_: rows, again=lambda: _recompute(inputs, changed, left, looked_up)
            )
    return _recompute(inputs, changed, left, looked_up)


def _have_few_rows(inputs: PlannedInputs, changed: Mapping[TableName, Rows]) -> bool:
    """Return whether the keys that few changed rows touch have few rows, by the averages that metadata tells.

    Then one query over these rows costs less than those that compute, merge and read states.
    """
    plan = inputs.plan
    counts = [rows.arrow.num_rows for rows in changed.values() if isinstance(rows, LocalRows)]
    rows = sum(plan.until[name].rows for name in plan.table.drivers)
    return len(counts) == len(changed) and sum(counts) * rows <= FEW_ROWS_OF_KEYS * plan.rows


def plan_refresh(inputs: PlannedInputs) -> Measured:
    """Return all rows that the table's file makes of its inputs as they are."""
    rows = run_with_states(inputs, {name: inputs.whole(name) for name in inputs.table.drivers})
    return measure(rows, expectations_of(inputs.table))


def reduce_rows(table: LayerTable, marked: DataFrame) -> DataFrame:
    """Gives back what the table holds of all events that there are, as `mark_events` leaves them."""
    events, found = split_truncates(table, marked)
    return _settle(table, events, () if found is None else (found,), carry=table.unchanged is not None)


def _settle(table: LayerTable, events: DataFrame, found: Sequence[DataFrame], *, carry: bool) -> DataFrame:
    """Gives back the newest row of a key, its history, or the rows as they are. `found` are truncates.

    With `carry`, values that events don't tell are filled in.

    What a truncate took away is not among the newest rows, not even as a deletion.
    """
    if not table.sequence_by:
        return one_of_keys(events, keys=table.keys) if table.keys else events
    if table.kind == "history":
        events = newest_of_keys(events, keys=[*table.keys, *table.sequence_by], sequence_by=table.sequence_by)
        events = with_epochs(table, events, found)
        events = carry_values(table, events) if carry else events
        return history_of_keys(events, table=table)
    if found:
        events = with_epochs(table, events, found)
    if carry:
        events = carry_values(table, events)
        newest = newest_of_keys(events, keys=table.keys, sequence_by=table.sequence_by, order=ORDER)
    else:
        newest = newest_of_keys(events, keys=table.keys, sequence_by=table.sequence_by)
    return newest.where(F.col(EPOCH).isNull()) if found else newest


def _merger(inputs: PlannedInputs) -> Decide:
    """Gives back how new events meet the rows that are there: as if all had come at once.

    Deletions and truncates that were kept are read where they can change anything: they give a history its ends, and a newest
    row only where an event is older than they are.
    """
    table, lake, entry = inputs.table, inputs.lake, inputs.plan.entry
    columns = tuple(each for each in lake.columns[table.table] if each.name not in HISTORY_COLUMNS)

    def decide(rows: DataFrame, old: DataFrame, glance: Glance) -> DataFrame:
        rows, found = split_truncates(table, rows)
        carry = table.unchanged is not None and (glance.untold + entry.rows_carried) > 0
        old = old.drop(*HISTORY_COLUMNS) if table.kind == "history" else old
        if carry:
            events = rows.unionByName(events_of_rows(table, old))
        elif table.unchanged:
            events = without_carried(rows, like=old).unionByName(old)
        else:
            events = rows.unionByName(old)
        if table.apply_as_deletes and (table.kind == "history" or glance.before_deletes or not entry.knows_deletes):
            deletes = inputs.kept_deletes(columns, keys=events if glance.truncates else rows)
            if deletes is not None:
                events = events.unionByName(deletes.withColumn(DELETED, F.lit(True)), allowMissingColumns=True)
        kept = _kept_truncates(inputs) if table.kind == "history" or glance.before_truncates else None
        every = (found if glance.truncates else None, kept)
        return _settle(table, events, tuple(each for each in every if each is not None), carry=carry)

    return decide


def _kept_truncates(inputs: PlannedInputs) -> DataFrame | None:
    """Gives back the truncates that earlier builds kept."""
    table, lake, entry = inputs.table, inputs.lake, inputs.plan.entry
    if entry.truncated_at is None:
        return None
    columns = tuple(each for each in lake.columns[table.table] if each.name in truncate_columns(table))
    return inputs.kept_truncates(columns)


def _recompute(
    inputs: PlannedInputs,
    changed: Mapping[TableName, Rows],
    left: Mapping[TableName, Rows],
    looked_up: Mapping[TableName, Sequence[Rows]],
) -> Work:
    """Return the work of building all rows of the touched keys again, from the inputs as they are; a truncate touches all.

    The keys that rows which left had, and those of `looked_up` where a lookup decides about them, are found with the lookups
    as they were: a row may have had another key then, and now none.
    """
    table = inputs.table
    past = moved_lookups(inputs) if looked_up and not driver_decides(table) else ()
    if past is None or (table.apply_as_truncates and not inputs.run(changed).where(truncates(table)).isEmpty()):
        return Work(plan_refresh(inputs), None, lambda rows, *_: reduce_rows(table, rows), whole=True)

    def decide(rows: DataFrame, *_: object) -> DataFrame:
        events, _found = split_truncates(table, rows)
        kept = _kept_truncates(inputs)
        return _settle(table, events, () if kept is None else (kept,), carry=table.unchanged is not None)

    older = {name: [*([left[name]] if name in left else ()), *(looked_up.get(name, ()) if past else ())] for name in changed}
    rows_before = {name: union(each, empty=inputs.none(name)) for name, each in older.items()} if any(older.values()) else None
    gone = None if rows_before is None else inputs.keys(rows_before, past=past)
    if same_key(table, inputs.lake.pipeline) and inputs.algebra is None:  # HAVING may hide keys that are touched
        return Work(measure(inputs.run(changed), expectations_of(table)), None, decide, left=gone)
    touched = inputs.keys(changed)
    touched = touched if gone is None else union([touched, gone], empty=touched).distinct()
    near = {name: inputs.near(name, touched) for name in table.drivers}
    rows = inputs.keep_touched(run_with_states(inputs, near), touched)
    return Work(measure(rows, expectations_of(table)), touched, decide)


def _features(inputs: PlannedInputs) -> Work:
    """Return the work of building the rows again whose window a change touches."""
    table = inputs.table
    driver = table.drivers[0]
    changes = inputs.changes(driver)
    assert table.window is not None
    affected = inputs.around(driver, changes, table.window)
    rows = affected.choose(inputs.run({driver: affected.context}))
    gone = None if changes.left is None else inputs.keys({driver: changes.left})
    return Work(measure(rows, table.expectations), None, lambda rows, *_: reduce_rows(table, rows), left=gone)
