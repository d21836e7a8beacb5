"""Run generators for a command: one thread per stream, with progress bars on a terminal."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Event

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.app.receiving import receiving
from headrace.errors import LockedError, SpecError
from headrace.file_locks import try_lock, unlock
from headrace.logs import log_trace
from headrace.servers.kafka import kafka
from headrace.servers.status import GENERATOR
from headrace.sessions.own_topics import make_topics
from headrace.settings import Settings
from headrace.sources.generate import Route, generate
from headrace.sources.generators import Rate, check_problems, load_generator
from headrace.sources.sinks import to_receiver, to_webhook
from headrace.spec.model.pipeline import Pipeline, Stream

_LOG = logging.getLogger(__name__)
SENDING = "Sending to topic"
"""The beginning of the line that a generator prints once it is ready to send."""


def generate_all(
    settings: Settings,
    pipeline: Pipeline,
    *,
    stream: str,
    rate: Rate,
    stop: Event,
    report: Callable[[str], None],
    console: Console,
) -> int:
    """Run the generator of one stream, or all generators if `stream` is empty, and return the number of events sent.

    `rate` applies to the busiest stream; the other streams scale with it.
    """
    chosen = choose_streams(pipeline, stream)
    check_problems(chosen, rate.problems)
    with ExitStack() as held:
        for target in chosen:
            held.enter_context(_generator_lock(settings, pipeline, target))
        servers = held.enter_context(kafka(settings, report=report))
        make_topics(settings, servers, chosen)
        way = held.enter_context(routes(settings, pipeline, chosen, report=report))
        for target in chosen:
            report(f"{SENDING} {target.topic}" + ("" if rate.count else " until Ctrl-C"))
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} events"),
            TimeElapsedColumn(),
        )
        with (
            Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars,
            ThreadPoolExecutor(max_workers=len(chosen)) as pool,
        ):
            futures = []
            for target in chosen:
                own = rate.in_proportion(target, among=chosen)
                bar = bars.add_task(target.topic, total=own.count)
                futures.append(
                    pool.submit(
                        generate,
                        target,
                        own,
                        bootstrap_servers=servers,
                        stop=stop,
                        progress=lambda count, bar=bar: bars.update(bar, completed=count),  # type: ignore[misc]
                        route=way.get(target.name),
                    )
                )
            for one, future in zip(chosen, futures, strict=True):
                future.add_done_callback(partial(_stop_after_error, one.name, stop))
            return sum(future.result() for future in futures)


def _stop_after_error(stream: str, stop: Event, done: Future[int]) -> None:
    """Stop the other generators after an error. The log has each one; the command ends with the first."""
    error = done.exception()
    if error is not None:
        stop.set()
        log_trace(_LOG, "a generator has ended", error, stream=stream)


@contextmanager
def routes(
    settings: Settings, pipeline: Pipeline, streams: Sequence[Stream], *, report: Callable[[str], None]
) -> Iterator[Mapping[str, Route]]:
    """Yield the HTTP route of each stream whose generator sends over HTTP, with the pipeline's receiver running."""
    paths = {stream.name: stream.through for stream in streams if stream.through is not None}
    if not paths or pipeline.http is None:
        yield {}
        return
    with receiving(settings, pipeline, report=report) as address:
        assert address is not None
        to = {receiver.path: to_receiver(receiver) for receiver in pipeline.http.receivers}
        public = settings.receive_public_url or address
        to |= {webhook.path: to_webhook(webhook, public, environ=os.environ) for webhook in pipeline.http.webhooks}
        yield {name: (address, to[path]) for name, path in paths.items()}


@contextmanager
def _generator_lock(settings: Settings, pipeline: Pipeline, stream: Stream) -> Iterator[None]:
    """Hold the lock of a numbered generator: two of them would start at the same number and send every event twice."""
    if not load_generator(stream).numbered:
        yield
        return
    label = f"{pipeline.name}.{stream.name}"
    held = try_lock(settings.home / "locks" / f"{GENERATOR}{label}.lock")
    if held is None:
        raise LockedError(
            "another generator is already sending to this stream",
            where=label,
            next_step=f"Stop it first. If it runs in the background: headrace generate {label} --stop",
        )
    try:
        yield
    finally:
        unlock(held)


def choose_streams(pipeline: Pipeline, stream: str) -> tuple[Stream, ...]:
    """Return the stream with this name, or all streams with a generator if it is empty."""
    able = [candidate for candidate in pipeline.streams if candidate.generator is not None]
    chosen = tuple(candidate for candidate in able if stream in ("", candidate.name))
    if not chosen:
        raise SpecError(
            f'no generator found for stream "{stream}"' if stream else "no stream has a generator",
            where=f"pipeline {pipeline.name}",
            next_step=f"Streams with a generator are: {', '.join(candidate.name for candidate in able) or 'none'}.",
        )
    return chosen
