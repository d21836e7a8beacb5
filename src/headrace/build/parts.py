"""Split a backlog into parts: a build takes as many of the oldest changes as fit into this process.

A build on Spark's scans takes any number of changes, but costs several times as much per change, because it compiles its query,
sorts and shuffles. The decision is recorded in docs/decisions/0034-backlogs-in-parts.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.build.inputs import is_raw
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.files.row_counts import rows_after, rows_written
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import KEY, BuildLedger, InputState
from headrace.iceberg.ledgers.landing import Ledger, ancestors
from headrace.spec.model.pipeline import Pipeline, TableName

MOST_PARTS = 50
"""A backlog that needs more parts is built at once with Spark's scans, which use many cores."""


@dataclass(frozen=True)
class Part:
    """The states up to which a build reads its inputs, and the commit time of the oldest remaining change."""

    until: Mapping[TableName, InputState]
    rows: int
    rest_since: float


@dataclass(frozen=True)
class _Step:
    """A commit to an input: the state after it, and the number of rows that it wrote."""

    name: TableName
    state: InputState
    rows: int
    at_ms: int


@dataclass(frozen=True)
class _Commits:
    """The commits to an input since the last build, in order.

    `start` is None if older snapshots were expired; the first step then has the rows of all commits before it.
    """

    start: InputState | None
    steps: tuple[_Step, ...]


def first_part(
    catalog: Catalog,
    pipeline: Pipeline,
    names: Collection[TableName],
    *,
    since: Mapping[TableName, InputState],
    until: Mapping[TableName, InputState],
    part_rows: int,
    most_rows: int,
) -> Part | None:
    """Return the first part of the inputs' changes for a build, or None if the build takes all of them.

    A part has up to `part_rows` rows, or is one commit of up to `most_rows`. All inputs are read as of the same moment, so that
    a part equals the input of a build at that moment.
    """
    commits: dict[TableName, _Commits] = {}
    for name in names:
        listed = _commits(load_table(catalog, name), name, since[name], until[name], raw=is_raw(name, pipeline))
        if listed is None:
            return None
        commits[name] = listed
    steps = sorted((step for listed in commits.values() for step in listed.steps), key=lambda step: step.at_ms)
    rows = sum(step.rows for step in steps)
    if len(steps) < 2 or steps[0].rows > most_rows or not part_rows < rows <= part_rows * MOST_PARTS:
        return None
    taken, taken_rows = 1, steps[0].rows
    while taken_rows + steps[taken].rows <= part_rows:
        taken_rows += steps[taken].rows
        taken += 1
    reached = {name: listed.start for name, listed in commits.items()}
    reached |= {step.name: step.state for step in steps[:taken]}
    known = {name: state for name, state in reached.items() if state is not None}
    if len(known) < len(reached):
        return None
    return Part({**until, **known}, taken_rows, steps[taken].at_ms / 1_000)


def _commits(table: Table | None, name: TableName, since: InputState, until: InputState, *, raw: bool) -> _Commits | None:
    """Return the commits between two states, or None if none is known."""
    steps: list[_Step] = []
    if table is None or since.is_at(until):
        return _Commits(since, ())
    start = since if since.snapshot_id is None else None
    state, rows = until, 0
    for snapshot in ancestors(table, table.current_snapshot()):
        after = _state_after(snapshot, until, raw=raw)
        if after is None or after.position > until.position:  # compaction has no position
            continue
        if (after.generation, after.erasures) != (until.generation, until.erasures):
            break
        if after.position <= since.position:
            start = replace(since, snapshot_id=snapshot.snapshot_id)
            break
        state = until if not steps else after
        rows = rows_written(snapshot)
        steps.append(_Step(name, state, rows, snapshot.timestamp_ms))
    if not steps:
        return None
    if start is None or since.snapshot_id is None:
        steps[-1] = replace(steps[-1], rows=max(rows, state.rows - since.rows))
    return _Commits(start, tuple(reversed(steps)))


def _state_after(snapshot: Snapshot, until: InputState, *, raw: bool) -> InputState | None:
    """Return the input's state after a commit, from the snapshot's ledger entry; None without an entry."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    text = summary.get(ledger.KEY if raw else KEY)
    if text is None:
        return None
    rows = rows_after(snapshot)
    if raw:
        landed = Ledger.from_json(text)
        known = replace(until, position=landed.checkpoint_id, generation=landed.rollbacks, erasures=landed.erasures)
    else:
        entry = BuildLedger.from_json(text)
        known = InputState(None, entry.changed_in, entry.generation, 0, entry.erasures, entry.replays, entry.removed_in)
    return replace(known, snapshot_id=snapshot.snapshot_id, rows=rows)
