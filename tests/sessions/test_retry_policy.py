"""Retries during outages: reported once, and bounded for commands that have to end."""

from __future__ import annotations

from threading import Event

import pytest

from headrace.backoff import Backoff
from headrace.errors import PublishError, UnavailableError
from headrace.sessions import retry_policy as retry_module
from headrace.sessions.retry_policy import RetryPolicy, for_command

OUTAGE = UnavailableError("the catalog does not answer: refused")


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(retry_module, "time", fake_clock)
    return fake_clock


def test_retry_policy_reports_an_outage_and_its_end_once(clock: Clock) -> None:
    reports: list[str] = []
    policy = RetryPolicy("landing", report=reports.append)
    policy.goes_on()
    assert [policy.next_pause(OUTAGE) for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert reports == ["landing: the catalog does not answer: refused; retrying until it succeeds"]
    assert policy.is_waiting
    clock.now += 60
    policy.goes_on()
    policy.goes_on()
    assert reports[1:] == ["landing: recovered after 60 s"]
    assert not policy.is_waiting
    assert policy.next_pause(OUTAGE) == 1
    assert len(reports) == 3


def test_for_command_gives_up_after_five_minutes(clock: Clock) -> None:
    policy = for_command("build", report=lambda sentence: None)
    policy.next_pause(OUTAGE)
    clock.now += 299
    policy.next_pause(OUTAGE)
    clock.now += 2
    with pytest.raises(UnavailableError, match="does not answer"):
        policy.next_pause(OUTAGE)


def test_next_pause_reports_the_whole_text_of_a_permanent_error() -> None:
    reports: list[str] = []
    RetryPolicy("publishing", report=reports.append).next_pause(PublishError("refused", where="table x", next_step="Fix it."))
    assert reports == ["publishing: table x: refused\nFix it.; retrying until it succeeds"]


def test_keep_trying_returns_the_first_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_module, "OUTAGES", Backoff(0.01, longest=10.0))
    reports: list[str] = []
    failures = iter([OUTAGE, OUTAGE])

    def attempt() -> str:
        for failure in failures:
            raise failure
        return "found"

    assert RetryPolicy("builds", report=reports.append).keep_trying(attempt, stop=Event()) == "found"
    assert [sentence.split(";")[0] for sentence in reports] == [f"builds: {OUTAGE.what}", "builds: recovered after 0 s"]


def test_keep_trying_raises_when_stop_is_set() -> None:
    stop = Event()
    stop.set()

    def attempt() -> None:
        raise OUTAGE

    with pytest.raises(UnavailableError):
        RetryPolicy("builds", report=lambda sentence: None).keep_trying(attempt, stop=stop)
