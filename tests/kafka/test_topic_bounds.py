"""Offsets of topics from a broker that is shutting down."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from headrace.errors import UnavailableError
from headrace.kafka import topics
from headrace.kafka.topics import list_bounds


class Admin:
    """Returns one response after the other; None is a response that never arrives."""

    def __init__(self, *answers: int | None) -> None:
        self._answers = iter(answers)

    def list_offsets(self, wanted: dict[TopicPartition, object], **named: object) -> dict[TopicPartition, Future[object]]:
        futures: dict[TopicPartition, Future[object]] = {}
        for at in wanted:
            futures[at] = Future()
            answer = next(self._answers)
            if answer is not None:
                futures[at].set_result(SimpleNamespace(offset=answer))
        return futures


def bounds(*answers: int | None) -> dict[tuple[str, int], tuple[int, int]]:
    admin: Any = Admin(*answers)
    return list_bounds(admin, [("orders", 0)])


def test_find_bounds_returns_low_and_high_offsets() -> None:
    assert bounds(3, 7) == {("orders", 0): (3, 7)}


@pytest.mark.parametrize("answers", [(3, -1001), (-1001, 7), (-1, -1)])
def test_find_bounds_rejects_negative_offsets(answers: tuple[int, int]) -> None:
    with pytest.raises(UnavailableError, match="partition 0 of orders"):
        bounds(*answers)


def test_find_bounds_raises_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(UnavailableError, match="it took too long"):
        bounds(3, None)
