"""Tables without a short lag share build time while changes keep arriving, and none waits long."""

from __future__ import annotations

import pytest

from headrace.build.scheduling.build_allowance import LONGEST_WAIT_SECONDS, BuildAllowance
from tests.build.scheduling.test_scheduler import Clock, table


def test_occasional_changes_are_built_at_once() -> None:
    clock = Clock(table("a", "raw"), table("b", "a"))
    for _ in range(100):
        clock.land()
        assert clock.start() == ["a"]
        clock.end("a", seconds=0.1)
        assert clock.start() == ["b"]
        clock.end("b", seconds=0.1)
        clock.wait(2)


def play(clock: Clock, words: str, *, seconds: int, build: float) -> dict[str, list[float]]:
    """Land every half second, build as the scheduler says, and return how old the changes were that each table built."""
    ages: dict[str, list[float]] = {word: [] for word in words}
    landed = dict.fromkeys(words, clock.now)
    for step in range(int(seconds / build)):
        if step % max(1, round(0.5 / build)) == 0:
            clock.land()
            landed = {word: landed[word] if landed[word] >= 0 else clock.now for word in words}
        started = clock.start()
        for word in started:
            ages[word].append(clock.now - landed[word])
            landed[word] = -1.0
        clock.wait(build)
        for word in started:
            clock.end(word, changed=False, seconds=build)
    return ages


def test_steady_changes_are_batched_within_the_longest_wait() -> None:
    clock = Clock(*(table(word, "raw") for word in "abcdefgh"))
    play(clock, "abcdefgh", seconds=60, build=0.05)
    ages = play(clock, "abcdefgh", seconds=100, build=0.05)
    assert all(15 <= len(age) <= 60 for age in ages.values()), "a fifth of the time for eight tables is a build in two seconds"
    assert max(age for ages_of_table in ages.values() for age in ages_of_table) <= LONGEST_WAIT_SECONDS + 1


def test_table_with_a_short_lag_takes_no_allowance() -> None:
    clock = Clock(table("a", "raw", lag=0.0), *(table(word, "raw") for word in "bcdefgh"))
    play(clock, "abcdefgh", seconds=60, build=0.05)
    ages = play(clock, "abcdefgh", seconds=100, build=0.05)
    assert len(ages["a"]) > 150
    assert max(ages["a"]) <= 0.5


def test_overdrawn_allowance_is_refilled() -> None:
    allowance = BuildAllowance()
    assert allowance.is_left(0.0)
    for _ in range(24):
        allowance.spend(0.25)
    assert not allowance.is_left(0.0)
    assert allowance.back_at(0.0) == pytest.approx(5.0, abs=0.01)
    assert not allowance.is_left(4.9)
    assert allowance.is_left(5.01)


def test_long_build_counts_as_a_short_one() -> None:
    allowance = BuildAllowance()
    allowance.spend(60.0)
    assert allowance.is_left(0.0)
