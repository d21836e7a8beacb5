"""Generators: a pipeline's own functions, run at any rate and for any count, into its topics."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from threading import Event as Flag
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.errors import SpecError, UnavailableError
from headrace.sources.encode import Event, encoder_of
from headrace.spec.pipeline import Stream

FIRST_MOMENT = datetime(2026, 1, 1, tzinfo=timezone.utc)
_FLUSH_SECONDS = 30.0
_AT_ONCE = 1_000


@dataclass(frozen=True)
class Rate:
    """How much to generate: `per_second` events (None: as fast as it can), `count` of them (None: without end).

    With a seed the events are the same each time: their clock starts at 2026-01-01 and moves 1 / `per_second` for each event
    (a tenth of a second if there is no rate).
    """

    per_second: float | None = 10.0
    count: int | None = None
    seed: int | None = None


def events_of(stream: Stream, rate: Rate) -> Iterator[Event]:
    """Gives back the events of a stream's generator."""
    make = _load_generator(stream)
    if rate.seed is None:
        return make(Random(), lambda: datetime.now(timezone.utc))
    step = timedelta(seconds=1 / (rate.per_second or 10.0))
    moment = FIRST_MOMENT - step

    def now() -> datetime:
        nonlocal moment
        moment += step
        return moment

    return make(Random(rate.seed), now)


def generate(
    stream: Stream,
    rate: Rate,
    *,
    bootstrap_servers: str,
    stop: Flag,
    progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Sends events until the count is reached or `stop` is set; gives back how many Kafka has acknowledged.

    Event `i` goes to partition `i` modulo the number of partitions, so that a seed fixes every offset of a new topic.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.max.bytes": 16 * 1024 * 1024,
            "log_level": 0,
        }
    )
    failed: list[str] = []

    def acknowledged(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    encode = encoder_of(stream)
    started = time.monotonic()
    sent = 0
    for event in events_of(stream, rate):
        if stop.is_set() or failed or (rate.count is not None and sent >= rate.count):
            break
        _produce(producer, stream, encode(event), partition=sent % stream.partitions, acknowledged=acknowledged)
        sent += 1
        if rate.per_second is not None:
            producer.poll(0)
            progress(sent)
            stop.wait(max(0.0, started + sent / rate.per_second - time.monotonic()))
        elif sent % _AT_ONCE == 0:
            producer.poll(0)
            progress(sent)
    left = producer.flush(_FLUSH_SECONDS)
    progress(sent)
    if failed or left:
        raise UnavailableError(
            f"Kafka did not acknowledge {len(failed) + left} of {sent} events: {failed[0] if failed else 'no answer'}",
            where=f"topic {stream.topic}",
            next_step="Check that the broker runs: headrace status",
        )
    return sent


def _produce(producer: Producer, stream: Stream, value: bytes, *, partition: int, acknowledged: Any) -> None:
    while True:
        try:
            producer.produce(stream.topic, value, partition=partition, on_delivery=acknowledged)
            return
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            raise UnavailableError(
                f"Kafka refused an event: {error}",
                where=f"topic {stream.topic}, partition {partition}",
                next_step="Check that the topic has the partitions that the pipeline says: headrace status",
            ) from error


def _load_generator(stream: Stream) -> Callable[[Random, Callable[[], datetime]], Iterator[Event]]:
    if stream.generator is None:
        raise SpecError(
            f'stream "{stream.name}" has no generator',
            where=f"stream {stream.name}",
            next_step="Name one in pipeline.yml, such as `generator: generators/events.py`, or send events to "
            f"{stream.topic} yourself.",
        )
    spec = importlib.util.spec_from_file_location(f"headrace_generator_{stream.name}", stream.generator)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        make: Callable[[Random, Callable[[], datetime]], Iterator[Event]] = module.events
    except Exception as error:
        raise SpecError(
            f"the generator can't be loaded: {type(error).__name__}: {error}",
            where=str(stream.generator),
            next_step="Fix the file; it must define events(random, now).",
        ) from error
    return make
