"""Generators as a command runs them: one thread for each stream, a bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.errors import SpecError
from headrace.services.kafka import kafka
from headrace.services.topics import admin_client, ensure_topics
from headrace.settings import Settings
from headrace.sources.generate import Rate, generate
from headrace.spec.pipeline import Pipeline, Stream


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
    """Runs the generators of one stream, or of all that have one if `stream` is empty; gives back how many events were sent."""
    chosen = _choose(pipeline, stream)
    with kafka(settings, report=report) as servers:
        ensure_topics(admin_client(servers), {one.topic: one.partitions for one in chosen})
        for one in chosen:
            report(f"Sending to topic {one.topic}" + ("" if rate.count else " until Ctrl-C"))
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
                bar = bars.add_task(one.topic, total=rate.count)
                futures.append(
                    pool.submit(
                        generate,
                        one,
                        rate,
                        bootstrap_servers=servers,
                        stop=stop,
                        progress=lambda count, bar=bar: bars.update(bar, completed=count),  # type: ignore[misc]
                    )
                )
            return sum(future.result() for future in futures)


def _choose(pipeline: Pipeline, stream: str) -> tuple[Stream, ...]:
    able = [one for one in pipeline.streams if one.generator is not None]
    chosen = tuple(one for one in able if stream in ("", one.name))
    if not chosen:
        raise SpecError(
            f'there is no generator for "{stream}"' if stream else "no stream has a generator",
            where=f"pipeline {pipeline.name}",
            next_step=f"Streams with a generator are: {', '.join(one.name for one in able) or 'none'}.",
        )
    return chosen
