"""A pipeline's generators: how their files are loaded, what they can be given, and how their streams keep their proportions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Union

from headrace.errors import SettingsError, SpecError
from headrace.sources.encode import Event
from headrace.spec.loading.modules import load_module
from headrace.spec.model.pipeline import Stream

PerSecond = Union[float, Literal["own"], None]


@dataclass(frozen=True)
class Rate:
    """How much to generate, and how badly.

    `per_second` events (None: as fast as it can; "own": as often as the pipeline says), `count` of them (None: without end).
    With a seed the events are the same each time: their clock starts at 2026-01-01 and moves by the time between two events
    (that of the pipeline if there is no rate). `problems` are rates of data-quality problems
    to use instead of the generator's own.
    """

    per_second: PerSecond = "own"
    count: int | None = None
    seed: int | None = None
    problems: Mapping[str, float] = field(default_factory=dict)

    def seconds_between(self, stream: Stream) -> float:
        """Return the seconds from one event to the next on the events' own clock."""
        return 1 / self.per_second if isinstance(self.per_second, (int, float)) else stream.every_seconds

    def in_proportion(self, stream: Stream, *, among: Sequence[Stream]) -> Rate:
        """Return the rate of one stream where this is the rate of the one that sends most often.

        Streams that refer to one another keep their proportions at any rate and count, as a refund needs its charge.
        """
        share = min(each.every_seconds for each in among) / stream.every_seconds
        per_second = self.per_second * share if isinstance(self.per_second, (int, float)) else self.per_second
        return replace(self, per_second=per_second, count=None if self.count is None else max(1, int(self.count * share)))


@dataclass(frozen=True)
class Generator:
    """A loaded generator. `problems` are the data-quality problems that it makes, with their rates.

    One that takes `start` is numbered: event `n` is fixed by the seed and `n`, so that it can go on where it stopped, and what
    another generator of the same seed refers to is known without asking.
    """

    make: Callable[..., Iterator[Event]]
    parameters: frozenset[str]
    problems: Mapping[str, float]

    @property
    def numbered(self) -> bool:
        return "start" in self.parameters


def load_generator(stream: Stream) -> Generator:
    """Return the generator of a stream; its file may import its neighbours (`from .world import …`)."""
    if stream.generator is None:
        raise SpecError(
            f'stream "{stream.name}" has no generator',
            where=f"stream {stream.name}",
            next_step="Name one in pipeline.yml, such as `generator: generators/events.py`, or send events to "
            f"{stream.topic} yourself.",
        )
    try:
        module = load_module(stream.generator)
        parameters = inspect.signature(module.events).parameters
        return Generator(module.events, frozenset(parameters), dict(getattr(module, "PROBLEMS", {})))
    except Exception as error:
        raise SpecError(
            f"the generator can't be loaded: {type(error).__name__}: {error}",
            where=str(stream.generator),
            next_step="Fix the file; it must define events(random, now).",
        ) from error


def read_problems(written: Sequence[str]) -> dict[str, float]:
    """Return the rates that were written as NAME=RATE."""
    rates: dict[str, float] = {}
    for text in written:
        name, _, number = text.partition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1:
            raise SettingsError(
                f'"{text}" is not a problem and its rate',
                where="--problem",
                next_step="Write it as --problem late=0.05, from 0 to 1.",
            )
        rates[name.strip()] = rate
    return rates


def check_problems(streams: Sequence[Stream], problems: Mapping[str, float]) -> None:
    """Refuse names that no generator of these streams knows."""
    if not problems:
        return
    known = {one.name: load_generator(one).problems for one in streams}
    for name in problems:
        if not any(name in rates for rates in known.values()):
            made = "; ".join(f"{stream}: {', '.join(sorted(rates))}" for stream, rates in known.items() if rates)
            raise SettingsError(
                f'no generator makes the problem "{name}"',
                where="--problem",
                next_step=f"Problems are: {made}." if made else "These generators make none: leave --problem out.",
            )
