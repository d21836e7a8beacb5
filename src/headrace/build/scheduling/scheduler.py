"""Decide which table a live run builds next: pure logic, without threads, clock or I/O.

A table is due when an input that it follows has changed. The due table with the oldest unprocessed change is built first, and a
table waits for upstream tables that have unprocessed changes as old as its own. Tables with a short `target_lag`, and their
upstream tables, have a reserved worker while they have changes. All others share an allowance of build time, so that changes
that keep arriving are built together. Times are seconds of a monotonic clock. The decision is recorded in
docs/decisions/0024-no-rounds.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from headrace.build.scheduling.build_allowance import LONGEST_WAIT_SECONDS, BuildAllowance
from headrace.build.scheduling.table_state import LONG_BUILD_SECONDS, NEVER, Changes, ScheduledTable, TableState
from headrace.spec.model.pipeline import TableName

WORKERS = 2
MOST_BUILDS = 2 * WORKERS
"""The maximum number of concurrent builds, including long ones."""

PROMPT_SECONDS = 5.0
"""A table with at most this `target_lag` is a prompt table."""

_REST_PER_BUILD_SECOND = 3.0
"""While a prompt table is late, other tables get a quarter of one worker's time: a build of theirs is followed by a rest of
this many times its duration."""

_SHARED_SECONDS = PROMPT_SECONDS / 2
"""While a prompt table is late, all prompt tables batch changes for this long, because each build has a fixed cost."""


class Scheduler:
    """Tracks which tables are due and running, and chooses the next one. Not thread-safe.

    `tables` are in dependency order. A table never has two concurrent builds. Downstream tables wait until an upstream table is
    built for the first time, and while it is refreshed.
    """

    def __init__(self, tables: Sequence[ScheduledTable]) -> None:
        self._states = {table.name: TableState(table) for table in tables}
        self._rank = {table.name: number for number, table in enumerate(tables)}
        self._followers = _readers((table, table.followed) for table in tables)
        self._readers = _readers((table, table.inputs) for table in tables)
        self._upstream: dict[TableName, frozenset[TableName]] = {}
        following: dict[TableName, frozenset[TableName]] = {}
        for table in tables:
            following[table.name] = self._closure(table.followed, following)
            self._upstream[table.name] = self._closure(table.inputs, following)
        declared = [table.name for table in tables if table.target_lag is not None and table.target_lag <= PROMPT_SECONDS]
        self._prompt = frozenset(declared).union(*(self._upstream[name] for name in declared))
        self._claimed: frozenset[TableName] = frozenset()
        self._allowance = BuildAllowance()
        self._others_rest_until = NEVER

    def _closure(self, inputs: frozenset[TableName], following: dict[TableName, frozenset[TableName]]) -> frozenset[TableName]:
        """Return the tables whose changes reach a table through these inputs."""
        built = {name for name in inputs if name in self._states}
        return frozenset(built.union(*(following[name] for name in built)))

    # Events.

    def moved(self, source: TableName, changes: Changes) -> None:
        """Record new changes of `source`, a raw or built table, for the tables that follow it."""
        for name in self._followers.get(source, ()):
            self.mark(name, changes)

    def mark(self, name: TableName, changes: Changes, *, at_once: bool = False) -> None:
        """Record unprocessed changes of a table's inputs; with `at_once` the table does not wait for its target lag."""
        self._states[name].mark(changes, at_once=at_once)

    def note_built(self, name: TableName) -> None:
        """Record that a table was built before, by any process."""
        self._states[name].is_built = True

    def claim(self, names: Collection[TableName]) -> None:
        """Start no builds of these tables until the next call: another process is about to write them."""
        self._claimed = frozenset(names)

    def take(self, now: float) -> TableName | None:
        """Return the table to build now and mark it as running; None if no table can start."""
        ready = [state for state in self._states.values() if self._can_start(state, now)]
        if not ready:
            return None
        state = min(ready, key=lambda state: self._order(state, now))
        state.start(now)
        return state.table.name

    def note_plan(self, name: TableName, *, is_refresh: bool) -> None:
        """Record whether the running build of a table is a refresh."""
        self._states[name].is_refresh = is_refresh

    def succeed(self, name: TableName, *, changed: bool, seconds: float | None = None, rest_since: float | None = None) -> None:
        """Record a successful build of all taken changes, or of the changes before `rest_since`.

        If the table `changed`, its downstream tables become due. `seconds` is the build's duration, if it predicts the next
        build's.
        """
        state = self._states[name]
        was_refresh = state.is_refresh
        processed = state.succeed(seconds=seconds, rest_since=rest_since)
        if seconds is not None and name not in self._prompt:
            self._allowance.spend(seconds)
            self._others_rest_until = state.started_at + seconds * (1 + _REST_PER_BUILD_SECOND)
        if changed:
            # After a refresh, tables that only look this one up may have to be built, too: erasures and replays reach them.
            for reader in (self._readers if was_refresh else self._followers).get(name, ()):
                self.mark(reader, processed)

    def fail(self, name: TableName, now: float) -> None:
        """Record a failed build: the table backs off, longer each time, and keeps its unprocessed changes."""
        self._states[name].back_off(now)

    def put_back(self, name: TableName) -> None:
        """Record that a build ended without a result, for a reason outside of the table."""
        self._states[name].put_back()

    # Queries.

    @property
    def is_idle(self) -> bool:
        """Whether no table is due or running."""
        return not any(state.unseen or state.building for state in self._states.values())

    @property
    def is_running(self) -> bool:
        return any(state.building for state in self._states.values())

    def has_unseen(self, name: TableName) -> bool:
        """Return whether a table has unprocessed changes, or is building."""
        return bool(self._states[name].unseen or self._states[name].building)

    def newest_change(self, name: TableName) -> float | None:
        """Return when the newest change in a table landed; None if that was before the run."""
        newest = self._states[name].newest
        return None if newest == NEVER else newest

    def held_up_by(self, name: TableName, now: float) -> tuple[TableName, ...]:
        """Return the due tables that can't be built before `name`."""
        blocked = {name}
        for state in self._states.values():
            waits = state.unseen and not state.building
            if waits and any(upstream in blocked for upstream in self._must_wait_for(state, now)):
                blocked.add(state.table.name)
        return tuple(table for table in self._states if table in blocked - {name})

    def wake_at(self, now: float) -> float | None:
        """Return the next time at which a waiting table may start, if nothing happens before."""
        times = [time for state in self._states.values() for time in self._times(state, now) if time > now]
        return min(times, default=None)

    def _times(self, state: TableState, now: float) -> Iterator[float]:
        if state.building is not None:
            yield state.started_at + LONG_BUILD_SECONDS
        elif state.unseen is not None:
            allowed_at = NEVER
            if state.table.name not in self._prompt:
                allowed_at = min(self._allowance.back_at(now), state.unseen.oldest + LONGEST_WAIT_SECONDS)
                if self._is_prompt_late(now):
                    allowed_at = max(allowed_at, self._others_rest_until)
            yield max(state.ready_at, allowed_at, self._shared_at(state, now))
            if state.table.target_lag:
                yield state.unseen.oldest + state.table.target_lag
            for upstream in (self._states[name] for name in self._upstream[state.table.name]):
                if upstream.building is not None:
                    yield upstream.started_at + state.upstream_wait

    def _can_start(self, state: TableState, now: float) -> bool:
        is_due = state.unseen is not None and state.building is None and state.ready_at <= now
        if not is_due or state.table.name in self._claimed or not self._has_worker(state, now):
            return False
        if not self._has_allowance(state, now) or now < self._shared_at(state, now):
            return False
        return not any(self._must_wait_for(state, now)) and not self._waits_for_upstream(state, now)

    def _has_allowance(self, state: TableState, now: float) -> bool:
        """Return whether a table may use build time now. Prompt, new and late tables always may."""
        if state.table.name in self._prompt or state.at_once or not state.is_built:
            return True
        return now >= self._oldest(state) + LONGEST_WAIT_SECONDS or self._allowance.is_left(now)

    def _shared_at(self, state: TableState, now: float) -> float:
        """Return when a prompt table may start that must batch its changes."""
        is_shared = state.table.name in self._prompt and self._is_prompt_late(now)
        return self._oldest(state) + _SHARED_SECONDS if is_shared else NEVER

    def _has_worker(self, state: TableState, now: float) -> bool:
        """Return whether a worker is free. While a long build runs, only tables with quick builds may use its worker."""
        running = [other for other in self._states.values() if other.building is not None]
        is_prompt = state.table.name in self._prompt
        runs_other = any(other.table.name not in self._prompt for other in running)
        if not is_prompt and self._is_prompt_late(now) and (runs_other or now < self._others_rest_until):
            return False
        short = sum(not other.runs_since(now) for other in running)
        if not is_prompt and self._awaits_prompt(now) and not self._runs_prompt(now):
            short += 1  # a worker is reserved for a prompt table
        large = sum(other.runs_since(now) or not other.is_quick for other in running)
        return short < WORKERS and len(running) < MOST_BUILDS and (state.is_quick or large < WORKERS)

    def _is_prompt_late(self, now: float) -> bool:
        """Return whether a prompt table builds changes older than the prompt lag, or has yet to: the cores can't keep up."""
        running = (state.building for state in (self._states[name] for name in self._prompt) if state.building is not None)
        return any(changes.oldest + PROMPT_SECONDS <= now for changes in chain(self._prompt_changes(now), running))

    def _awaits_prompt(self, now: float) -> bool:
        """Return whether a prompt table has changes to build, except tables that back off after a failure."""
        return any(self._prompt_changes(now))

    def _prompt_changes(self, now: float) -> Iterator[Changes]:
        """Yield the unprocessed changes of prompt tables, except tables that back off after a failure."""
        for state in (self._states[name] for name in self._prompt):
            if state.unseen is not None and state.retry_at <= now:
                yield state.unseen

    def _runs_prompt(self, now: float) -> bool:
        """Return whether a prompt table uses one of the workers."""
        states = [self._states[name] for name in self._prompt]
        return any(state.building is not None and not state.runs_since(now) for state in states)

    def _order(self, state: TableState, now: float) -> tuple[bool, float, float, int]:
        """Return the sort key of a table. One prompt table at a time precedes tables that have waited longer.

        Prompt tables take turns, upstream first, so that their downstream tables build the changes of several of them together.
        """
        goes_first = state.table.name in self._prompt and not self._runs_prompt(now)
        turn = state.started_at if goes_first else self._oldest(state)
        return not goes_first, turn, self._oldest(state), self._rank[state.table.name]

    def _must_wait_for(self, state: TableState, now: float) -> Iterator[TableName]:
        """Yield the inputs that must be built first, however long they take, because the build would be wrong or wasted.

        A lookup must be as fresh as the changes that use it, within its own lag: a later change of it would not rebuild them.
        """
        oldest = self._oldest(state)
        for name in state.table.inputs:
            upstream = self._states.get(name)
            if upstream is None:
                continue
            is_wanted = upstream.is_coming(now) or upstream.retry_at > now
            is_late_lookup = name not in state.table.followed and is_wanted and upstream.owes(oldest)
            if not upstream.is_built or upstream.is_refresh or is_late_lookup:
                yield name

    def _waits_for_upstream(self, state: TableState, now: float) -> bool:
        """Return whether upstream tables are about to deliver changes as old as the table's own.

        The table would have to be built again for them. It does not wait for a long build, nor longer than its lag allows.
        """
        oldest = self._oldest(state)
        if state.table.target_lag and now >= oldest + state.table.target_lag:
            return False
        for name in self._upstream[state.table.name]:
            upstream = self._states[name]
            if not upstream.is_coming(now) or upstream.runs_since(now, state.upstream_wait) or not upstream.owes(oldest):
                continue
            if upstream.building or not (name in self._claimed or any(self._must_wait_for(upstream, now))):
                return True
        return False

    @staticmethod
    def _oldest(state: TableState) -> float:
        assert state.unseen is not None
        return state.unseen.oldest


def _readers(tables: Iterable[tuple[ScheduledTable, frozenset[TableName]]]) -> dict[TableName, list[TableName]]:
    readers: dict[TableName, list[TableName]] = {}
    for table, inputs in tables:
        for name in inputs:
            readers.setdefault(name, []).append(table.name)
    return readers
