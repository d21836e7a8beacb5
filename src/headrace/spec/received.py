"""The decorator of functions that take events over HTTP, and what they give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.spec.pipeline import Method

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Received:
    """What became of a request: the event for the topic, and the answer that is given once Kafka has acknowledged it."""

    event: Mapping[str, object]
    answer: Mapping[str, object]


def receive(path: str, stream: str, *, method: Method = "GET") -> Callable[[F], F]:
    """Marks a function as a receiver of a pipeline's HTTP source.

    Its parameters are those of a FastAPI handler; `now` is given the moment of the request. It gives back a `Received`. The
    function stays as it is, so that it can be called in a test. The arguments are read from the file itself, so that
    `headrace check` need not run it.
    """
    return lambda function: function
