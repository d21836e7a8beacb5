"""Plan a table's build from metadata alone: what it reads and writes, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.catalog import Catalog

from headrace.build.definition import TableDefinition, definition_of
from headrace.build.entities.weights import can_train_now
from headrace.build.inputs import input_states, state_of
from headrace.build.legacy_definition import legacy_digest
from headrace.build.parts import first_part
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import BuildLedger, InputState, read_build
from headrace.iceberg.schema.added_columns import added_columns
from headrace.spec.model.layers import STATE, LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName

_FEW_ROWS = 100_000
"""The maximum number of changed rows for a build in this process, where Spark interprets its query. Compiling pays off late:
for 37,500 events through all tables of payments, it took 20 to 30 % more CPU in the first two builds."""

_FEW_SCANNED = 50_000
"""The maximum number of changed rows for a build on scans with one partition and without code generation."""

_READ_PER_CHANGED = 6

PART_ROWS = 30_000
"""The maximum number of changed rows that one build takes from a backlog."""

FEW_REFRESHED = 50_000
"""The maximum number of input rows for a refresh in this process. The first builds of a live run process the rows that arrived
while Spark started: on scans, 15,000 charges took a minute."""

_LEAST_PART_ROWS = PART_ROWS // 8
"""The maximum number of changed rows after a build with more rows did not fit into this process."""

_NEVER_BUILT = "it was never built"

Action = Literal["nothing", "increment", "refresh"]


@dataclass(frozen=True)
class TablePlan:
    """`refresh` rewrites the whole table, `increment` applies the changes between `since` and `until` of its inputs.

    `after` are the inputs that the same run builds first. `has_states` tells whether the table stores partial states. A build
    that takes only a part of a backlog leaves changes from `rest_since` on, in seconds since 1970, to the next build.
    `on_scans` is set if the rows of this build don't fit into this process.
    """

    table: LayerTable
    action: Action
    why: tuple[str, ...]
    since: Mapping[TableName, InputState]
    until: Mapping[TableName, InputState]
    entry: BuildLedger
    definition: TableDefinition
    rows: int = 0
    after: tuple[TableName, ...] = ()
    has_states: bool = False
    rest_since: float | None = None
    on_scans: bool = False

    @property
    def erased(self) -> tuple[TableName, ...]:
        """The inputs, including lookups, with an erasure since they were last read."""
        return tuple(name for name in self.table.inputs if self.since[name].erasures != self.until[name].erasures)

    @property
    def replayed(self) -> tuple[TableName, ...]:
        """The inputs, including lookups, with a replay since they were last read."""
        return tuple(name for name in self.table.inputs if self.since[name].replays != self.until[name].replays)

    @property
    def reads_few(self) -> bool:
        """Return whether a build has few rows to process or rewrite, according to metadata."""
        if self.on_scans:
            return False
        return self.refreshes_few if self.action == "refresh" else self.changed_rows <= _FEW_ROWS

    @property
    def refreshes_few(self) -> bool:
        """Return whether a refresh reads and replaces few rows."""
        return self._input_rows <= FEW_REFRESHED and self.rows <= _FEW_ROWS

    @property
    def driver_rows(self) -> int:
        """The number of rows of the table's drivers, according to metadata."""
        return sum(self.until[name].rows for name in self.table.drivers)

    @property
    def _input_rows(self) -> int:
        return sum(state.rows for state in self.until.values())

    @property
    def changed_rows(self) -> int:
        """The growth of the inputs in rows since the last build, according to metadata."""
        return sum(max(0, state.rows - self.since[name].rows) for name, state in self.until.items())

    @property
    def is_small(self) -> bool:
        """Return whether a build reads and writes few rows, according to metadata."""
        table, is_refresh = self.table, self.action == "refresh"
        changed = self._input_rows if is_refresh else self.changed_rows
        looked_up = any(routes and not self.since[name].is_at(self.until[name]) for name, routes in table.follows.items())
        by_rows = table.traits.reads_new_rows and not looked_up and not table.untracked
        read = self.rows if not table.constant and table.traits.scans_own_rows else 0
        if not by_rows or is_refresh:
            read += self._input_rows
        return changed <= _FEW_SCANNED and read <= _FEW_SCANNED * _READ_PER_CHANGED


def plan_table(catalog: Catalog, pipeline: Pipeline, table: LayerTable, *, full_refresh: bool = False) -> TablePlan:
    """Plan the next build of a table. From a backlog it takes the oldest changes."""
    stored = load_table(catalog, table.table)
    entry = read_build(stored)
    until = input_states(catalog, pipeline, table.inputs)
    since = {name: entry.reads.get(str(name), InputState()) for name in table.inputs}
    definition = definition_of(table)
    rows = state_of(stored, raw=False).rows
    has_states = stored is not None and STATE in added_columns(stored)
    plan = TablePlan(table, "nothing", (), since, until, entry, definition, rows, has_states=has_states)
    reasons = _refresh_reasons(plan, full_refresh=full_refresh)
    if reasons == (_NEVER_BUILT,) and _can_begin_with_part(plan):
        known = sum(state.rows for name, state in until.items() if name not in table.followed)
        return _take_part(catalog, pipeline, replace(plan, action="refresh", why=reasons), most_rows=FEW_REFRESHED - known)
    if reasons:
        return replace(plan, action="refresh", why=reasons)
    moved = tuple(name for name in table.followed if not since[name].is_at(until[name]))
    if not moved:
        return replace(plan, why=("its inputs have not moved",))
    if table.traits.rewrites_all:
        return replace(plan, action="refresh", why=tuple(f"{name} has moved" for name in moved))
    plan = replace(plan, action="increment", why=tuple(_moved(name, since[name], until[name]) for name in moved))
    if sum(until[name].position - since[name].position for name in moved) < 2:
        return plan
    return _take_part(catalog, pipeline, plan, most_rows=_FEW_ROWS)


def take_less(catalog: Catalog, pipeline: Pipeline, plan: TablePlan) -> TablePlan:
    """Return a plan with fewer changes after one whose rows did not fit into this process, or the same plan on scans."""
    less = plan
    if plan.action == "increment" or (not plan.entry.build_id and _can_begin_with_part(plan)):
        less = _take_part(catalog, pipeline, plan, part_rows=_LEAST_PART_ROWS, most_rows=_LEAST_PART_ROWS)
    return replace(plan, on_scans=True) if less is plan else less


def _can_begin_with_part(plan: TablePlan) -> bool:
    """Return whether a first build may be split: a table that trains on its records needs all of them."""
    is_replayed = any(state.replays for state in plan.until.values())
    return not plan.table.traits.rewrites_all and plan.table.fuzzy is None and not is_replayed


def _take_part(
    catalog: Catalog, pipeline: Pipeline, plan: TablePlan, *, most_rows: int, part_rows: int | None = None
) -> TablePlan:
    """Return the plan for a part of the changes, if there are too many for one build."""
    size = PART_ROWS if part_rows is None else part_rows
    names, since, until = plan.table.followed, plan.since, plan.until
    part = first_part(catalog, pipeline, names, since=since, until=until, part_rows=size, most_rows=most_rows)
    if part is None:
        return plan
    why = (*plan.why, f"it takes the oldest {part.rows:,} changed rows first")
    return replace(plan, until=part.until, rest_since=part.rest_since, why=why)


def foresee(plans: Sequence[TablePlan]) -> tuple[TablePlan, ...]:
    """Return the plans of a run over tables in order, with the effect of each planned build on its downstream tables."""
    foreseen: dict[TableName, TablePlan] = {}
    for plan in plans:
        before = {name: foreseen[name].action for name in plan.table.followed if name in foreseen}
        after = tuple(name for name, action in before.items() if action != "nothing")
        foreseen[plan.table.table] = _follow(plan, after, refreshes="refresh" in before.values()) if after else plan
    return tuple(foreseen.values())


def _follow(plan: TablePlan, after: tuple[TableName, ...], *, refreshes: bool) -> TablePlan:
    if plan.action == "refresh":
        return replace(plan, after=after)
    known = plan.why if plan.action == "increment" else ()
    refreshes = refreshes or plan.table.traits.rewrites_all or any(plan.table.follows.get(name, ()) is None for name in after)
    action: Action = "refresh" if refreshes else "increment"
    return replace(plan, action=action, after=after, why=(*known, *(f"{name} is built before it" for name in after)))


def _refresh_reasons(plan: TablePlan, *, full_refresh: bool) -> tuple[str, ...]:
    if full_refresh:
        return ("it was asked for",)
    if not plan.entry.build_id:
        return (_NEVER_BUILT,)
    if plan.entry.definition != plan.definition.digest and plan.entry.definition != legacy_digest(plan.table):
        changed = ", ".join(plan.definition.changes_since(plan.entry.definition_fields))
        return (f"its definition has changed: {changed}" if changed else "its definition has changed",)
    if can_train_now(plan.table.fuzzy, plan.entry.weights, records=plan.rows):
        return (f"its {plan.rows:,} records are enough to train weights",)
    reasons = [f"a person was erased from {name}" for name in plan.erased]
    reasons += [f"rows of {name} were replayed" for name in plan.replayed]
    reasons += [f"{name} is no longer frozen" for name in plan.table.follows if str(name) in plan.entry.frozen]
    for name in plan.table.followed:
        since, until = plan.since[name], plan.until[name]
        if since.generation != until.generation or until.position < since.position:
            reasons.append(f"{name} was refreshed or rolled back")
        elif plan.table.follows.get(name, ()) is None and not since.is_at(until):
            reasons.append(f"{name} has moved, and all rows follow it")
    return tuple(reasons)


def _moved(name: TableName, since: InputState, until: InputState) -> str:
    count = until.position - since.position
    return f"{name} has moved by {count:,} commit{'' if count == 1 else 's'}"
