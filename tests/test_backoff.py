"""Retries: pauses that double, limits, and errors that are not retried."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from headrace.backoff import Backoff


class Work:
    """Work that raises these errors one after another, then returns the number of attempts."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors: Iterator[BaseException] = iter(errors)
        self.attempts = 0

    def __call__(self) -> int:
        self.attempts += 1
        for error in self._errors:
            raise error
        return self.attempts


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr("headrace.backoff.time.sleep", seconds.append)
    return seconds


def is_value_error(error: Exception) -> bool:
    return isinstance(error, ValueError)


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, longest=3.0)
    assert [backoff.pause(failures) for failures in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_retry_returns_the_first_result(pauses: list[float]) -> None:
    assert Backoff(0.1, attempts=3).retry(Work(ValueError(), ValueError()), on=is_value_error) == 3
    assert pauses == [0.1, 0.2]


def test_retry_raises_the_last_error_unchanged(pauses: list[float]) -> None:
    last = ValueError("last")
    with pytest.raises(ValueError, match="last") as raised:
        Backoff(0.1, attempts=2).retry(Work(ValueError("first"), last, ValueError("next")), on=is_value_error)
    assert raised.value is last
    assert pauses == [0.1]


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt()])
def test_retry_raises_other_errors_at_once(error: BaseException, pauses: list[float]) -> None:
    work = Work(error)
    with pytest.raises(type(error)):
        Backoff(0.1).retry(work, on=is_value_error)
    assert (work.attempts, pauses) == (1, [])


def test_retry_ends_after_its_seconds(pauses: list[float]) -> None:
    work = Work(ValueError(), ValueError())
    with pytest.raises(ValueError):  # noqa: PT011
        Backoff(0.1, seconds=0.0).retry(work, on=is_value_error)
    assert work.attempts == 1


def test_retry_takes_the_pause_of_an_error(pauses: list[float]) -> None:
    Backoff(0.1).retry(Work(ValueError("7")), on=is_value_error, pause=lambda error: float(str(error)))
    assert pauses == [7.0]


def test_retry_makes_no_attempt_after_stop() -> None:
    stop, work = Event(), Work(ValueError(), ValueError())
    stop.set()
    with pytest.raises(ValueError):  # noqa: PT011
        Backoff(0.1).retry(work, on=is_value_error, stop=stop)
    assert work.attempts == 1
