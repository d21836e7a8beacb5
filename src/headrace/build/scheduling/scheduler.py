"""Decide which table a live run builds next: pure logic, without threads, clock or I/O.

A table is due when an input that it follows has moved. Of the tables that are due, the one whose oldest unseen change has
waited longest goes first, and a table waits for upstream tables that still have to bring it changes as old as its own. Tables
with a short `target_lag`, and all that they are built from, have a worker of their own while they have changes to build. All
others share an allowance of build time, so that changes which keep coming are built together. Times are seconds of any clock
that only goes forward. Why it is done so: docs/decisions/0024-no-rounds.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from headrace.build.scheduling.build_allowance import LONGEST_WAIT_SECONDS, BuildAllowance
from headrace.build.scheduling.table_state import LONG_BUILD_SECONDS, NEVER, Changes, ScheduledTable, TableState
from headrace.spec.model.pipeline import TableName

WORKERS = 2
MOST_BUILDS = 2 * WORKERS
"""How many builds run at once at most, the long ones included."""

PROMPT_SECONDS = 5.0
"""Up to this `target_lag` a table is a prompt one."""

_SHARED_SECONDS = PROMPT_SECONDS / 2
"""While a prompt table is late, all of them let changes gather for so long: each build has a cost that rows don't change."""


class Scheduler:
    """Which tables are due, which run, and which comes next. It is used by one thread.

    `tables` come in the order in which they read one another. A table is never built twice at once. Until an upstream table was
    built for the first time, or while one is refreshed, its readers wait for it.
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
        asked = [table.name for table in tables if table.target_lag is not None and table.target_lag <= PROMPT_SECONDS]
        self._prompt = frozenset(asked).union(*(self._upstream[name] for name in asked))
        self._claimed: frozenset[TableName] = frozenset()
        self._allowance = BuildAllowance()

    def _closure(self, inputs: frozenset[TableName], following: dict[TableName, frozenset[TableName]]) -> frozenset[TableName]:
        """Return the tables whose changes reach a table through these inputs."""
        built = {name for name in inputs if name in self._states}
        return frozenset(built.union(*(following[name] for name in built)))

    # What happens.

    def moved(self, source: TableName, changes: Changes) -> None:
        """Note that `source`, a raw table or a built one, has new changes: the tables that follow it have not seen them."""
        for name in self._followers.get(source, ()):
            self.mark(name, changes)

    def mark(self, name: TableName, changes: Changes, *, at_once: bool = False) -> None:
        """Note that a table has not seen `changes`; with `at_once` its target lag is not waited for."""
        self._states[name].mark(changes, at_once=at_once)

    def note_built(self, name: TableName) -> None:
        """Note that a table was built before, by whomever."""
        self._states[name].is_built = True

    def claim(self, names: Collection[TableName]) -> None:
        """Leave these tables alone until the next call: another process is about to write them."""
        self._claimed = frozenset(names)

    def take(self, now: float) -> TableName | None:
        """Return the table to build now, which counts as running from here on; None if none can start."""
        ready = [state for state in self._states.values() if self._can_start(state, now)]
        if not ready:
            return None
        state = min(ready, key=lambda state: self._order(state, now))
        state.start(now)
        return state.table.name

    def note_plan(self, name: TableName, *, is_refresh: bool) -> None:
        """Note whether the running build of a table writes all its rows again."""
        self._states[name].is_refresh = is_refresh

    def succeed(self, name: TableName, *, changed: bool, seconds: float | None = None, rest_since: float | None = None) -> None:
        """Note that a table has seen what it took, or the changes before `rest_since`. If it `changed`, its followers have not.

        `seconds` is what the build took, if that tells how long the next one will take.
        """
        state = self._states[name]
        was_refresh = state.is_refresh
        seen = state.succeed(seconds=seconds, rest_since=rest_since)
        if seconds is not None and name not in self._prompt:
            self._allowance.spend(seconds)
        if changed:
            # After a refresh even tables that only look this one up may have to be built: an erasure or a replay reaches them.
            for reader in (self._readers if was_refresh else self._followers).get(name, ()):
                self.mark(reader, seen)

    def fail(self, name: TableName, now: float) -> None:
        """Note that a build failed: the table waits, longer each time, and keeps what it has not seen."""
        self._states[name].back_off(now)

    def put_back(self, name: TableName) -> None:
        """Note that a build ended without a result for a reason that is not the table's own."""
        self._states[name].put_back()

    # What is asked.

    @property
    def is_idle(self) -> bool:
        """Whether nothing is due or running."""
        return not any(state.unseen or state.building for state in self._states.values())

    @property
    def is_running(self) -> bool:
        return any(state.building for state in self._states.values())

    def has_unseen(self, name: TableName) -> bool:
        """Return whether a table has changes to build, or builds some."""
        return bool(self._states[name].unseen or self._states[name].building)

    def newest_change(self, name: TableName) -> float | None:
        """Return when the newest change landed that a table has; None if that was before the run."""
        newest = self._states[name].newest
        return None if newest == NEVER else newest

    def held_up_by(self, name: TableName, now: float) -> tuple[TableName, ...]:
        """Return the tables that are due and can't be built before `name` is."""
        held = {name}
        for state in self._states.values():
            if state.unseen and not state.building and any(each in held for each in self._must_wait_for(state, now)):
                held.add(state.table.name)
        return tuple(each for each in self._states if each in held - {name})

    def wake_at(self, now: float) -> float | None:
        """Return when a table may be able to start that can't now, if nothing happens before."""
        times = [time for state in self._states.values() for time in self._times(state, now) if time > now]
        return min(times, default=None)

    def _times(self, state: TableState, now: float) -> Iterator[float]:
        if state.building is not None:
            yield state.started_at + LONG_BUILD_SECONDS
        elif state.unseen is not None:
            allowed_at = NEVER
            if state.table.name not in self._prompt:
                allowed_at = min(self._allowance.back_at(now), state.unseen.oldest + LONGEST_WAIT_SECONDS)
            yield max(state.ready_at, allowed_at, self._shared_at(state, now))
            if state.table.target_lag:
                yield state.unseen.oldest + state.table.target_lag
            for upstream in (self._states[name] for name in self._upstream[state.table.name]):
                if upstream.building is not None:
                    yield upstream.started_at + state.retry_policy

    def _can_start(self, state: TableState, now: float) -> bool:
        is_due = state.unseen is not None and state.building is None and state.ready_at <= now
        if not is_due or state.table.name in self._claimed or not self._has_worker(state, now):
            return False
        if not self._has_allowance(state, now) or now < self._shared_at(state, now):
            return False
        return not any(self._must_wait_for(state, now)) and not self._waits_for_upstream(state, now)

    def _has_allowance(self, state: TableState, now: float) -> bool:
        """Return whether a table may take build time now: one that is prompt, new or late may in any case."""
        if state.table.name in self._prompt or state.at_once or not state.is_built:
            return True
        return now >= self._oldest(state) + LONGEST_WAIT_SECONDS or self._allowance.is_left(now)

    def _shared_at(self, state: TableState, now: float) -> float:
        """Return when a prompt table may start that has to share its builds with changes to come."""
        is_late = any(
            each.building is not None and each.building.oldest + PROMPT_SECONDS <= now
            for each in (self._states[name] for name in self._prompt)
        )
        is_shared = state.table.name in self._prompt and (is_late or self._is_prompt_late(now))
        return self._oldest(state) + _SHARED_SECONDS if is_shared else NEVER

    def _has_worker(self, state: TableState, now: float) -> bool:
        """Return whether a worker is free; in the place of a long build only a table may run that is known to be quick."""
        running = [each for each in self._states.values() if each.building is not None]
        is_prompt = state.table.name in self._prompt
        if not is_prompt and self._is_prompt_late(now) and any(each.table.name not in self._prompt for each in running):
            return False
        short = sum(not each.runs_since(now) for each in running)
        if not is_prompt and self._awaits_prompt(now) and not self._runs_prompt(now):
            short += 1  # a worker is kept for a prompt table
        large = sum(each.runs_since(now) or not each.is_quick for each in running)
        return short < WORKERS and len(running) < MOST_BUILDS and (state.is_quick or large < WORKERS)

    def _is_prompt_late(self, now: float) -> bool:
        """Return whether a prompt table has changes older than any prompt lag: the cores can't keep up."""
        return any(changes.oldest + PROMPT_SECONDS <= now for changes in self._prompt_changes(now))

    def _awaits_prompt(self, now: float) -> bool:
        """Return whether a prompt table has changes to build; one that has failed is not waited for."""
        return any(self._prompt_changes(now))

    def _prompt_changes(self, now: float) -> Iterator[Changes]:
        """Yield what prompt tables have to build; one that has failed and still pauses is left out."""
        for state in (self._states[name] for name in self._prompt):
            if state.unseen is not None and state.retry_at <= now:
                yield state.unseen

    def _runs_prompt(self, now: float) -> bool:
        """Return whether a prompt table has one of the workers."""
        states = [self._states[name] for name in self._prompt]
        return any(state.building is not None and not state.runs_since(now) for state in states)

    def _order(self, state: TableState, now: float) -> tuple[bool, float, float, int]:
        """Return what puts tables in order. One prompt table at a time comes before tables that have waited longer.

        Prompt tables take turns, upstream first, so that the changes of several of them share the builds of their readers.
        """
        goes_first = state.table.name in self._prompt and not self._runs_prompt(now)
        turn = state.started_at if goes_first else self._oldest(state)
        return not goes_first, turn, self._oldest(state), self._rank[state.table.name]

    def _must_wait_for(self, state: TableState, now: float) -> Iterator[TableName]:
        """Yield the inputs without which a build would be wrong or wasted, however long they take.

        An input that is only looked up has to be as new as the changes that look it up, as far as its own lag allows: nothing
        would build them again.
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
        """Return whether upstream tables are about to bring changes as old as those that a table would build now.

        It would have to be built again for them. A build that takes long is not waited for, and none longer than the lag
        allows.
        """
        oldest = self._oldest(state)
        if state.table.target_lag and now >= oldest + state.table.target_lag:
            return False
        for name in self._upstream[state.table.name]:
            upstream = self._states[name]
            if not upstream.is_coming(now) or upstream.runs_since(now, state.retry_policy) or not upstream.owes(oldest):
                continue
            if upstream.building or not (name in self._claimed or any(self._must_wait_for(upstream, now))):
                return True
        return False

    @staticmethod
    def _oldest(state: TableState) -> float:
        assert state.unseen is not None
        return state.unseen.oldest


def _readers(tables: Iterable[tuple[ScheduledTable, frozenset[TableName]]]) -> dict[TableName, list[TableName]]:
    found: dict[TableName, list[TableName]] = {}
    for table, inputs in tables:
        for name in inputs:
            found.setdefault(name, []).append(table.name)
    return found
