"""Generators as a command runs them: one thread for each stream, a bar on a terminal."""

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
"""How the line begins that says that all is ready and events follow."""


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
    """Run the generators of one stream, or of all that have one if `stream` is empty, and return how many events were sent.

    Of several streams, `rate` is that of the one that sends most often; the others keep their proportion to it.
    """
    chosen = choose_streams(pipeline, stream)
    check_problems(chosen, rate.problems)
    with ExitStack() as held:
        for one in chosen:
            held.enter_context(_one_at_a_time(settings, pipeline, one))
        servers = held.enter_context(kafka(settings, report=report))
        make_topics(settings, servers, chosen)
        way = held.enter_context(ways(settings, pipeline, chosen, report=report))
        for one in chosen:
            report(f"{SENDING} {one.topic}" + ("" if rate.count else " until Ctrl-C"))
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
            for one in chosen:
                own = rate.in_proportion(one, among=chosen)
                bar = bars.add_task(one.topic, total=own.count)
                futures.append(
                    pool.submit(
                        generate,
                        one,
                        own,
                        bootstrap_servers=servers,
                        stop=stop,
                        progress=lambda count, bar=bar: bars.update(bar, completed=count),  # type: ignore[misc]
                        route=way.get(one.name),
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
def ways(
    settings: Settings, pipeline: Pipeline, streams: Sequence[Stream], *, report: Callable[[str], None]
) -> Iterator[Mapping[str, Route]]:
    """Yield the way of each stream whose generator sends over HTTP; the pipeline's server runs meanwhile."""
    paths = {one.name: one.through for one in streams if one.through is not None}
    if not paths or pipeline.http is None:
        yield {}
        return
    with receiving(settings, pipeline, report=report) as address:
        assert address is not None
        to = {each.path: to_receiver(each) for each in pipeline.http.receivers}
        public = settings.receive_public_url or address
        to |= {each.path: to_webhook(each, public, environ=os.environ) for each in pipeline.http.webhooks}
        yield {name: (address, to[path]) for name, path in paths.items()}


@contextmanager
def _one_at_a_time(settings: Settings, pipeline: Pipeline, stream: Stream) -> Iterator[None]:
    """Hold a numbered generator's lock: two of them would count from the same number and make everything twice."""
    if not load_generator(stream).numbered:
        yield
        return
    label = f"{pipeline.name}.{stream.name}"
    held = try_lock(settings.home / "locks" / f"{GENERATOR}{label}.lock")
    if held is None:
        raise LockedError(
            "another generator sends to this stream already",
            where=label,
            next_step=f"Stop it first. If it runs in the background: headrace generate {label} --stop",
        )
    try:
        yield
    finally:
        unlock(held)


def choose_streams(pipeline: Pipeline, stream: str) -> tuple[Stream, ...]:
    """Return the stream of that name, or all that have a generator if it is empty."""
    able = [one for one in pipeline.streams if one.generator is not None]
    chosen = tuple(one for one in able if stream in ("", one.name))
    if not chosen:
        raise SpecError(
            f'there is no generator for "{stream}"' if stream else "no stream has a generator",
            where=f"pipeline {pipeline.name}",
            next_step=f"Streams with a generator are: {', '.join(one.name for one in able) or 'none'}.",
        )
    return chosen
