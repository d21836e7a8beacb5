"""Waiting for a server that is away: told once, bounded where a command is to end."""

from __future__ import annotations

from threading import Event

import pytest

from headrace.errors import PublishError, UnavailableError
from headrace.sessions import retry_policy as retry_module
from headrace.sessions.retry_policy import RetryPolicy, for_command

AWAY = UnavailableError("the catalog does not answer: refused")


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(retry_module, "time", found)
    return found


def test_it_is_told_once_and_so_is_that_it_goes_on(clock: Clock) -> None:
    said: list[str] = []
    retry_policy = RetryPolicy("landing", report=said.append)
    retry_policy.goes_on()
    assert [retry_policy.next_pause(AWAY) for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert said == ["landing: the catalog does not answer: refused; waiting, and trying again until it goes on"]
    assert retry_policy.is_waiting
    clock.now += 60
    retry_policy.goes_on()
    retry_policy.goes_on()
    assert said[1:] == ["landing: going on after 60 s"]
    assert not retry_policy.is_waiting
    assert retry_policy.next_pause(AWAY) == 1
    assert len(said) == 3


def test_a_command_gives_up_after_five_minutes(clock: Clock) -> None:
    retry_policy = for_command("build", report=lambda sentence: None)
    retry_policy.next_pause(AWAY)
    clock.now += 299
    retry_policy.next_pause(AWAY)
    clock.now += 2
    with pytest.raises(UnavailableError, match="does not answer"):
        retry_policy.next_pause(AWAY)


def test_what_is_not_worth_a_retry_is_told_whole() -> None:
    said: list[str] = []
    RetryPolicy("publishing", report=said.append).next_pause(PublishError("refused", where="table x", next_step="Mend it."))
    assert said == ["publishing: table x: refused\nMend it.; waiting, and trying again until it goes on"]


def test_keep_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_module, "_FIRST_PAUSE_SECONDS", 0.01)
    said: list[str] = []
    failures = iter([AWAY, AWAY])

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "found"

    assert RetryPolicy("builds", report=said.append).keep_trying(attempt, stop=Event()) == "found"
    assert [sentence.split(";")[0] for sentence in said] == [f"builds: {AWAY.what}", "builds: going on after 0 s"]


def test_keep_trying_ends_when_it_is_stopped() -> None:
    stop = Event()
    stop.set()

    def attempt() -> None:
        raise AWAY

    with pytest.raises(UnavailableError):
        RetryPolicy("builds", report=lambda sentence: None).keep_trying(attempt, stop=stop)
