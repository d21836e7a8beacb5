"""The phases of a build are exclusive, and cost nothing outside of a build."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from headrace.iceberg.commits.build_phases import BuildPhases, PhaseTimer, phase, time_phases
from headrace.iceberg.ledgers.build import BuildLedger


class Clock:
    """A clock that a test advances."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_timer_counts_a_phase_without_the_phases_inside() -> None:
    clock = Clock()
    timer = PhaseTimer(clock)
    with timer.measure("query"):
        clock.now += 1
        with timer.measure("fetch"):
            clock.now += 2
            with timer.measure("query"):
                clock.now += 4
        clock.now += 8
    clock.now += 16
    with timer.measure("commit"):
        clock.now += 32
    assert timer.phases == BuildPhases(fetch=2.0, query=13.0, commit=32.0)


def test_timer_counts_a_phase_that_fails() -> None:
    clock = Clock()
    timer = PhaseTimer(clock)

    def fail() -> None:
        with timer.measure("query"), timer.measure("fetch"):
            clock.now += 3
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    clock.now += 5
    with timer.measure("write"):
        clock.now += 1
    assert timer.phases == BuildPhases(fetch=3.0, write=1.0)


def test_phase_marks_functions_of_the_build_that_runs_on_this_thread() -> None:
    @phase("fetch")
    def read(value: int) -> int:
        """Return it."""
        return value

    assert (read(1), read.__doc__) == (1, "Return it.")
    with time_phases() as outer:
        with time_phases() as inner:
            assert read(2) == 2
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(read, 3).result() == 3
    assert "fetch" in inner._seconds
    assert not outer._seconds, "neither another build's time nor another thread's"


def test_ledger_keeps_phases_and_reads_entries_without_them() -> None:
    entry = BuildLedger(build_id=2, phases=BuildPhases(0.012, 0.3, 0.02, 0.021), definition_fields={"query": "ab"})
    assert BuildLedger.from_json(entry.to_json()) == entry
    assert BuildLedger.from_json(replace(entry, phases=None).to_json()).phases is None
