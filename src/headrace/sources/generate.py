"""Run a pipeline's generators of synthetic events, at any rate and count, into its topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice
from random import Random
from threading import Event as Flag

from headrace.backoff import TOPIC_LEADERS
from headrace.errors import UnavailableError
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, list_bounds
from headrace.sources.encode import Event
from headrace.sources.generators import Generator, Rate, load_generator
from headrace.sources.sinks import HttpSink, Prepare, Sink, TopicSink
from headrace.spec.model.pipeline import Stream

__all__ = ["FIRST_MOMENT", "Rate", "events_of", "generate"]

FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)
Route = tuple[str, Prepare]
"""The address of a server, and the function that turns events into its requests."""
_NO_SEED = 0
_AT_ONCE = 1_000
_SHOWN_SECONDS = 0.1
_SHORTEST_PAUSE_SECONDS = 0.005
"""Thousands of pauses in a second cost more than the events. A producer gathers them for longer than this anyway."""


def events_of(stream: Stream, rate: Rate, *, start: int = 0) -> Iterator[Event]:
    """Return the events of a stream's generator. `start` is the number of the first event of a numbered generator."""
    return _events(load_generator(stream), stream, rate, start=start)


def generate(
    stream: Stream,
    rate: Rate,
    *,
    bootstrap_servers: KafkaServers,
    stop: Flag,
    progress: Callable[[int], None] = lambda count: None,
    route: Route | None = None,
) -> int:
    """Send events until the count is reached or `stop` is set. Return how many were acknowledged.

    Events go to the topic, or over HTTP with a `route`. Event `i` goes to partition `i` modulo the number of partitions, so a
    seed fixes every offset of a new topic. Without a seed, a numbered generator continues after the events in its topic.
    """
    generator = load_generator(stream)
    first = _count_events(stream, bootstrap_servers) if generator.numbered and rate.seed is None else 0
    pause = None if rate.per_second is None else rate.seconds_between(stream)
    sink: Sink = TopicSink(stream, bootstrap_servers) if route is None else HttpSink(*route, is_stopped=stop.is_set)
    events = _events(generator, stream, rate, start=first)
    sent, shown_at = 0, 0.0
    for event in islice(_paced(events, pause, started=time.monotonic(), stop=stop), rate.count):
        sink.send(event, number=first + sent)
        sent += 1
        if pause is not None or sent % _AT_ONCE == 0:
            sink.poll()
            if time.monotonic() - shown_at > _SHOWN_SECONDS:  # updating a progress bar costs more than an event
                progress(sent)
                shown_at = time.monotonic()
        if sink.has_failed():
            break
    sink.finish(sent)
    progress(sent)
    return sent


def _events(generator: Generator, stream: Stream, rate: Rate, *, start: int) -> Iterator[Event]:
    given: dict[str, object] = {}
    if "problems" in generator.parameters:
        given["problems"] = {name: rate.problems[name] for name in generator.problems if name in rate.problems}
    if generator.numbered:
        given["start"] = start
    # Numbered generators need the same seed to agree with one another.
    seed = _NO_SEED if rate.seed is None and generator.numbered else rate.seed
    return generator.make(Random(seed), _clock(generator, stream, rate), **given)


def _clock(generator: Generator, stream: Stream, rate: Rate) -> Callable[[], datetime]:
    """Return the clock of the events' times.

    With a seed, it is a simulated clock. Numbered events without a rate get times at their stream's own rate, ending now: with
    equal times, an event could not be ordered after the events that it refers to.
    """
    step = timedelta(seconds=rate.seconds_between(stream))
    if rate.seed is not None:
        moment = FIRST_MOMENT
    elif generator.numbered and rate.per_second is None and rate.count is not None:
        moment = datetime.now(timezone.utc) - rate.count * step
    else:
        return lambda: datetime.now(timezone.utc)

    def now() -> datetime:
        nonlocal moment
        moment += step
        return moment

    return now


def _paced(events: Iterator[Event], pause: float | None, *, started: float, stop: Flag) -> Iterator[Event]:
    """Yield each event when it is due, the first after one pause, until `stop` is set. Events are generated when due.

    At high rates the events of a few milliseconds follow one another.
    """
    sent = 0
    while not stop.is_set():
        if pause is not None:
            sent += 1
            early = started + sent * pause - time.monotonic()
            if early > 0 and stop.wait(max(early, _SHORTEST_PAUSE_SECONDS)):
                return
        try:
            yield next(events)
        except StopIteration:
            return


def _count_events(stream: Stream, bootstrap_servers: KafkaServers) -> int:
    """Return the sum of the topic's end offsets. Retries, because a new topic has no leader at first."""
    admin = admin_client(bootstrap_servers)
    partitions = [(stream.topic, partition) for partition in range(stream.partitions)]

    def count_now() -> int:
        return sum(end for _, end in list_bounds(admin, partitions).values())

    return TOPIC_LEADERS.retry(count_now, on=lambda error: isinstance(error, UnavailableError))
