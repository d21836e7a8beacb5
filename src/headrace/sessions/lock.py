"""Locks: one application at a time runs a pipeline of a home.

The locks are kernel file locks, valid for all containers of a machine that share the home. The files name the holder for
information only: a process id means nothing in another container.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import LockedError
from headrace.file_locks import is_locked, unlock, wait_for_lock
from headrace.settings import Settings

SHARED = "metadata.shared"
"""The name of the maintenance lock for the tables that all pipelines share."""


@contextmanager
def pipeline_lock(settings: Settings, pipeline: str, *, take_over: bool) -> Iterator[None]:
    """Hold the pipeline's landing lock. The kernel releases it however this process ends.

    With `take_over`, proceed even if another application holds the lock: that application's next commit is refused.
    """
    next_step = "Stop it first. If it hangs, run headrace run or headrace land with --take-over."
    with _lock(settings, pipeline, f"{pipeline}.lock", does="runs", take_over=take_over, next_step=next_step):
        yield


@contextmanager
def replay_lock(settings: Settings, pipeline: str) -> Iterator[None]:
    """Hold the pipeline's replay lock. Landing and builds do not need it."""
    next_step = "Wait until it is done, or stop it: a replay can be stopped and run again."
    with _lock(settings, pipeline, f"{pipeline}.replay.lock", does="replays", take_over=False, next_step=next_step):
        yield


def is_running(settings: Settings, pipeline: str) -> bool:
    """Return whether an application lands this pipeline now."""
    return is_locked(_path(settings, f"{pipeline}.lock"))


def is_replaying(settings: Settings, pipeline: str) -> bool:
    """Return whether an application replays this pipeline now."""
    return is_locked(_path(settings, f"{pipeline}.replay.lock"))


@contextmanager
def build_lock(settings: Settings, pipeline: str) -> Iterator[None]:
    """Hold the pipeline's build lock. Landing does not need it."""
    next_step = "Wait until it is done, or stop it first."
    with _lock(settings, pipeline, f"{pipeline}.build.lock", does="builds", take_over=False, next_step=next_step):
        yield


@contextmanager
def maintain_lock(settings: Settings, pipeline: str, *, wait_seconds: float = 60.0) -> Iterator[None]:
    """Hold the pipeline's maintenance lock. Erasures need it too; landing and builds do not.

    `headrace run` holds it for seconds at a time, so wait for it, up to `wait_seconds`.
    """
    file = f"{pipeline}.maintain.lock"
    next_step = "Wait until it is done: maintenance and erasures rewrite the same files."
    with _lock(settings, pipeline, file, does="maintains", take_over=False, next_step=next_step, wait_seconds=wait_seconds):
        yield


@contextmanager
def _lock(
    settings: Settings,
    pipeline: str,
    file: str,
    *,
    does: str,
    take_over: bool,
    next_step: str,
    wait_seconds: float = 0.0,
) -> Iterator[None]:
    path = _path(settings, file)
    held = wait_for_lock(path, timeout=wait_seconds)
    if held is None and not take_over:
        holder = path.read_text(encoding="utf-8").strip()
        raise LockedError(
            f"another application already {does} this pipeline (process {holder or 'unknown'})",
            where=pipeline,
            next_step=next_step,
        )
    try:
        if held is not None:
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        if held is not None:
            os.ftruncate(held, 0)
            unlock(held)


def _path(settings: Settings, file: str) -> Path:
    return settings.home / "locks" / file
