"""One application at a time runs a pipeline of a home.

The kernel holds the locks, for all containers of a machine that share the home. Their files say who took them, for people
alone: a process's number means nothing in another container.
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
"""What stands for the tables that all pipelines share, where maintenance is locked."""


@contextmanager
def pipeline_lock(settings: Settings, pipeline: str, *, take_over: bool) -> Iterator[None]:
    """Hold the pipeline's lock for landing, which the kernel takes back however this process ends.

    With `take_over` a lock that another application holds is passed by: if that one still lives, its next commit is refused.
    """
    next_step = "Stop it first. If it hangs, headrace run and headrace land pass it by with --take-over."
    with _lock(settings, pipeline, f"{pipeline}.lock", does="runs", take_over=take_over, next_step=next_step):
        yield


@contextmanager
def replay_lock(settings: Settings, pipeline: str) -> Iterator[None]:
    """Hold the pipeline's lock for replaying, which neither landing nor building needs."""
    next_step = "Wait for it, or stop it first: a replay that is stopped leaves the tables as they were."
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
    """Hold the pipeline's lock for building, which landing does not need."""
    next_step = "Its tables are built there. Wait for it, or stop it first."
    with _lock(settings, pipeline, f"{pipeline}.build.lock", does="builds", take_over=False, next_step=next_step):
        yield


@contextmanager
def maintain_lock(settings: Settings, pipeline: str, *, retry_policy: float = 60.0) -> Iterator[None]:
    """Hold the pipeline's lock for maintenance, which neither landing nor building needs; an erasure does.

    `headrace run` holds it for seconds at a time, so it is waited for, up to `retry_policy` seconds.
    """
    file = f"{pipeline}.maintain.lock"
    next_step = "Wait for it: maintenance and erasures rewrite the same files."
    with _lock(settings, pipeline, file, does="maintains", take_over=False, next_step=next_step, retry_policy=retry_policy):
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
    retry_policy: float = 0.0,
) -> Iterator[None]:
    path = _path(settings, file)
    held = wait_for_lock(path, timeout=retry_policy)
    if held is None and not take_over:
        holder = path.read_text(encoding="utf-8").strip()
        raise LockedError(
            f"another application {does} this pipeline already (process {holder or 'unknown'})",
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
