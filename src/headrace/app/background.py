"""Run generators in the background: one process each, with a log, stopped by its pid."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.app.generating import SENDING, choose_streams
from headrace.errors import ServiceError
from headrace.file_locks import locked, unlock
from headrace.servers import process
from headrace.servers.status import GENERATOR, list_background
from headrace.settings import Settings
from headrace.sources.generators import Rate, check_problems, load_generator
from headrace.spec.model.pipeline import Pipeline, Stream

WAIT_SECONDS = 120.0


def start_background(
    settings: Settings,
    pipeline: Pipeline,
    *,
    stream: str,
    rate: Rate,
    report: Callable[[str], None],
    wait_seconds: float = WAIT_SECONDS,
) -> None:
    """Start a process per generator that runs until `stop_background`. Idempotent by stream: a running one is kept."""
    chosen = choose_streams(pipeline, stream)
    check_problems(chosen, rate.problems)
    started = []
    for target in chosen:
        name = f"{GENERATOR}{pipeline.name}.{target.name}"
        flags = flags_of(rate, target, among=chosen)
        launch = process.Launch(
            name=name,
            command=(sys.executable, "-m", "headrace.cli", "generate", f"{pipeline.name}.{target.name}", *flags),
            folder=Path.cwd(),
            environ=os.environ,
            port=0,
        )
        with locked(process.start_lock(settings.home, name), timeout=process.GRACE):
            state = process.read_state(settings.home, name)
            if state is not None and process.find_process(state) is not None:
                report(f"{pipeline.name}.{target.name} is already running (process {state.pid})")
                continue
            lease = process.take_lease(settings.home, name)
            try:
                started.append(process.start(settings.home, launch, detached=True))
            finally:
                unlock(lease)
    deadline = time.monotonic() + wait_seconds
    for state in started:
        _wait_until_sending(settings, state, deadline=deadline, report=report)


def stop_background(settings: Settings, *, target: str, report: Callable[[str], None]) -> int:
    """Stop the background generators of a stream, of a pipeline, or all if `target` is empty; return how many ran."""
    stopped = 0
    for name in list_background(settings):
        label = name.removeprefix(GENERATOR)
        if target in ("", label, label.partition(".")[0]):
            with locked(process.start_lock(settings.home, name), timeout=process.GRACE):
                if process.stop(settings.home, name):
                    report(f"{label} is stopped")
                    stopped += 1
    return stopped


def flags_of(rate: Rate, stream: Stream, *, among: Sequence[Stream]) -> list[str]:
    """Return the flags for a stream's share of the rate, and for the problems that its generator knows."""
    own = rate.in_proportion(stream, among=among)
    flags = [] if own.per_second == "own" else ["--rate", str(own.per_second or 0)]
    flags += [] if own.count is None else ["--count", str(own.count)]
    flags += [] if own.seed is None else ["--seed", str(own.seed)]
    known = load_generator(stream).problems if own.problems else {}
    for name, value in own.problems.items():
        flags += ["--problem", f"{name}={value}"] if name in known else []
    return flags


def _wait_until_sending(
    settings: Settings, state: process.ServiceState, *, deadline: float, report: Callable[[str], None]
) -> None:
    """Return when the generator's log says that it sends, or at the deadline: a broker may have to start first."""
    label, log = state.name.removeprefix(GENERATOR), Path(state.log)
    while SENDING not in log.read_text(encoding="utf-8", errors="replace"):
        if process.find_process(state) is None:
            process.stop(settings.home, state.name)
            raise ServiceError(
                f"{label} ended before it sent anything", where=state.log, next_step=f"Read the log: headrace logs {state.name}"
            )
        if time.monotonic() > deadline:
            report(f"{label} has not started sending yet. Read its log: headrace logs {state.name}")
            return
        time.sleep(0.05)
    process.mark_ready(settings.home, state)
    report(f"{label} is sending (process {state.pid}), log: {state.log}")
