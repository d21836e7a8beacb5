"""Load a pipeline's generators, their parameters, and the rates that keep their streams in proportion."""

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
    """How many events to generate, and with how many data-quality problems.

    `per_second` is the rate (None: no limit; "own": the pipeline's rate), and `count` the number of events (None: no end).
    With a seed, events are reproducible: their clock starts at 2026-01-01 and advances by the interval of two events (the
    pipeline's interval without a rate). `problems` are rates of data-quality problems, instead of the generator's own.
    """

    per_second: PerSecond = "own"
    count: int | None = None
    seed: int | None = None
    problems: Mapping[str, float] = field(default_factory=dict)

    def seconds_between(self, stream: Stream) -> float:
        """Return the seconds between two events on the events' clock."""
        return 1 / self.per_second if isinstance(self.per_second, (int, float)) else stream.every_seconds

    def in_proportion(self, stream: Stream, *, among: Sequence[Stream]) -> Rate:
        """Return the rate of one stream, if this is the rate of the most frequent stream.

        Streams that refer to one another keep their proportions at any rate and count: a refund needs its charge.
        """
        share = min(other.every_seconds for other in among) / stream.every_seconds
        per_second = self.per_second * share if isinstance(self.per_second, (int, float)) else self.per_second
        return replace(self, per_second=per_second, count=None if self.count is None else max(1, int(self.count * share)))


@dataclass(frozen=True)
class Generator:
    """A loaded generator. `problems` are its data-quality problems with their rates.

    A generator with a `start` parameter is numbered: the seed and `n` determine event `n`. It can continue where it stopped,
    and generators with the same seed can refer to one another's events.
    """

    make: Callable[..., Iterator[Event]]
    parameters: frozenset[str]
    problems: Mapping[str, float]

    @property
    def numbered(self) -> bool:
        return "start" in self.parameters


def load_generator(stream: Stream) -> Generator:
    """Return the generator of a stream. Its file may import its neighbours (`from .world import …`)."""
    if stream.generator is None:
        raise SpecError(
            f'stream "{stream.name}" has no generator',
            where=f"stream {stream.name}",
            next_step="Add one to pipeline.yml, such as `generator: generators/events.py`, or send events to "
            f"{stream.topic} yourself.",
        )
    try:
        module = load_module(stream.generator)
        parameters = inspect.signature(module.events).parameters
        return Generator(module.events, frozenset(parameters), dict(getattr(module, "PROBLEMS", {})))
    except Exception as error:
        raise SpecError(
            f"can't load the generator: {type(error).__name__}: {error}",
            where=str(stream.generator),
            next_step="Fix the file: it must define events(random, now).",
        ) from error


def read_problems(written: Sequence[str]) -> dict[str, float]:
    """Parse rates of the form NAME=RATE."""
    rates: dict[str, float] = {}
    for text in written:
        name, _, number = text.partition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1:
            raise SettingsError(
                f'invalid problem rate "{text}"',
                where="--problem",
                next_step="Write NAME=RATE with a rate from 0 to 1, such as --problem late=0.05.",
            )
        rates[name.strip()] = rate
    return rates


def check_problems(streams: Sequence[Stream], problems: Mapping[str, float]) -> None:
    """Raise a SettingsError for a problem that no generator of these streams has."""
    if not problems:
        return
    known = {stream.name: load_generator(stream).problems for stream in streams}
    for name in problems:
        if not any(name in rates for rates in known.values()):
            listed = "; ".join(f"{label}: {', '.join(sorted(rates))}" for label, rates in known.items() if rates)
            raise SettingsError(
                f'no generator has the problem "{name}"',
                where="--problem",
                next_step=f"Problems are: {listed}." if listed else "These generators have no problems: remove --problem.",
            )
