"""What a build of a keyed table has to compute: the rows of the keys that a change touches, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.carry import carry_values, events_of_rows, without_carried
from headrace.build.events import EPOCH, expectations_of, split_truncates, truncate_columns, truncates, with_epochs
from headrace.build.features import touched_windows
from headrace.build.glance import Glance
from headrace.build.joins import drop_matching, keep_matching
from headrace.build.lake import PlannedInputs
from headrace.build.pruning import driver_decides, same_key, with_keys_near
from headrace.build.removed import DELETED, read_deletes, read_truncates
from headrace.build.versions import ORDER, history_of_keys, newest_of_keys, one_of_keys
from headrace.quality.expectations import Measured, measure
from headrace.spec.layers import HISTORY_COLUMNS, LayerTable
from headrace.spec.pipeline import TableName
from headrace.tables.spark_columns import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Decide = Callable[["DataFrame", "DataFrame", Glance], "DataFrame"]


@dataclass(frozen=True)
class Work:
    """Measured rows, the keys that are touched, and how rows and the old ones of these keys become the new ones.

    `touched` has the keys and the constant columns; None stands for those of the rows themselves, and for all keys of the table
    where the rows are of all keys (`whole`) or a truncate is among them. `decide` takes the rows that passed, as `mark_events`
    leaves them, the table's old rows with `_tombstone`, and what a glance at the rows told, and gives back the rows that the
    touched keys shall have.
    """

    measured: Measured
    touched: DataFrame | None
    decide: Decide
    whole: bool = False


def work_of(inputs: PlannedInputs) -> Work:
    """Gives back what an increment of the table has to do."""
    table = inputs.table
    if table.kind == "features":
        return _features(inputs)
    changes = {name: inputs.changes(name) for name in table.drivers if inputs.moved(name)}
    before = {name: each.before for name, each in changes.items() if each.before is not None}
    looked_up = _touched_by_lookups(inputs)
    changed: dict[TableName, DataFrame] = {}
    for name in table.drivers:
        parts = [changes[name].rows] if name in changes else []
        changed[name] = _all_of(inputs, name, [*parts, *looked_up.get(name, [])])
    only_new = not before and not looked_up
    if only_new and table.kind in ("upsert", "history", "entities") and not table.untracked:
        rows = measure(inputs.run(changed), expectations_of(table))
        return Work(rows, None, _merger(inputs))
    return _recompute(inputs, changed, before, looked_up)


def whole_work(inputs: PlannedInputs) -> Measured:
    """Gives back all rows that the table's file makes of its inputs as they are."""
    rows = inputs.run({name: inputs.whole(name) for name in inputs.table.drivers})
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
            deletes = read_deletes(lake.spark, lake.catalog, table.table, generation=entry.generation, columns=columns)
            if deletes is not None:
                mine = keep_matching(deletes, events if glance.truncates else rows, table.keys)
                events = events.unionByName(mine.withColumn(DELETED, F.lit(True)), allowMissingColumns=True)
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
    return read_truncates(lake.spark, lake.catalog, table.table, generation=entry.generation, columns=columns)


def _recompute(
    inputs: PlannedInputs,
    changed: Mapping[TableName, DataFrame],
    before: Mapping[TableName, DataFrame],
    looked_up: Mapping[TableName, Sequence[DataFrame]],
) -> Work:
    """Gives back the work of building all rows of the touched keys again, from the inputs as they are; a truncate touches
    all.

    The keys that rows of `before` had, and those of `looked_up` where a lookup decides about them, are found with the lookups
    as they were: a row may have had another key then, and now none.
    """
    table = inputs.table
    now = inputs.run(changed)
    past = _past_lookups(inputs) if looked_up and not driver_decides(table) else {}
    if past is None or (table.apply_as_truncates and not now.where(truncates(table)).isEmpty()):
        return Work(whole_work(inputs), None, lambda rows, *_: reduce_rows(table, rows), whole=True)

    def decide(rows: DataFrame, *_: object) -> DataFrame:
        events, _found = split_truncates(table, rows)
        kept = _kept_truncates(inputs)
        return _settle(table, events, () if kept is None else (kept,), carry=table.unchanged is not None)

    older = {
        name: [*([before[name]] if name in before else ()), *(looked_up.get(name, ()) if past else ())] for name in changed
    }
    parts = [now]
    if any(older.values()):
        parts.append(inputs.run({name: _all_of(inputs, name, each) for name, each in older.items()}, past=past))
    touched = _keys_of(table, parts).persist()
    if same_key(table, inputs.lake.pipeline):
        rows = now
    else:
        near = {name: with_keys_near(inputs.whole(name), table, touched) for name in table.drivers}
        rows = keep_matching(inputs.run(near), touched, table.keys)
    return Work(measure(rows, expectations_of(table)), touched, decide)


def _features(inputs: PlannedInputs) -> Work:
    """Gives back the work of building the rows again whose window a change touches."""
    table = inputs.table
    driver = table.drivers[0]
    changes = inputs.changes(driver)
    window = table.window
    assert window is not None
    affected = touched_windows(inputs.whole(driver), changes, window)
    rows = inputs.run({driver: affected.context})
    rows = affected.choose(rows)
    parts = [rows]
    if changes.before is not None:
        parts.append(inputs.run({driver: changes.before}))
    touched = _keys_of(table, parts).persist()
    return Work(measure(rows, table.expectations), touched, lambda rows, *_: reduce_rows(table, rows))


def _touched_by_lookups(inputs: PlannedInputs) -> dict[TableName, list[DataFrame]]:
    """Gives back the drivers' older rows that are joined to rows of a declared lookup which changed, each row once."""
    found: dict[TableName, list[DataFrame]] = {}
    if not inputs.table.rebuild_on:
        return found
    older = {name: inputs.unchanged(name) for name in inputs.table.drivers}
    for lookup, pairs in inputs.table.rebuild_on.items():
        if not inputs.moved(lookup):
            continue
        changes = inputs.changes(lookup)
        rows = changes.rows if changes.before is None else changes.rows.unionByName(changes.before)
        values = F.broadcast(rows.select(*(named(name) for name in pairs)).distinct())
        mine = {column: theirs for theirs, column in pairs.items()}
        for driver, rest in older.items():
            if all(column in rest.columns for column in mine):
                found.setdefault(driver, []).append(keep_matching(rest, values, mine))
                older[driver] = drop_matching(rest, values, mine)
    return found


def _past_lookups(inputs: PlannedInputs) -> dict[TableName, DataFrame] | None:
    """Gives back the followed lookups that moved as the last build read them, or None where one is no longer known."""
    found: dict[TableName, DataFrame] = {}
    for name in filter(inputs.moved, inputs.table.rebuild_on):
        rows = inputs.past(name)
        if rows is None:
            return None
        found[name] = rows
    return found


def _all_of(inputs: PlannedInputs, name: TableName, parts: Sequence[DataFrame]) -> DataFrame:
    """Gives back the rows of some parts of a driver, or none of it."""
    return reduce(lambda a, b: a.unionByName(b), parts) if parts else inputs.whole(name).limit(0)


def _keys_of(table: LayerTable, parts: Iterable[DataFrame]) -> DataFrame:
    names = tuple(dict.fromkeys((*table.keys, *table.constant)))
    chosen = [each.select(*(named(name) for name in names)) for each in parts]
    return reduce(lambda a, b: a.unionByName(b), chosen).distinct()
