"""One application at a time runs a pipeline of a home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import LockedError
from headrace.services.locks import try_lock, unlock
from headrace.settings import Settings


@contextmanager
def pipeline_lock(settings: Settings, pipeline: str, *, take_over: bool) -> Iterator[None]:
    """Holds the pipeline's lock, which the kernel takes back however this process ends.

    With `take_over` a lock that another application holds is passed by: if that one still lives, its next commit is refused.
    """
    path = settings.home / "locks" / f"{pipeline}.lock"
    held = try_lock(path)
    if held is None and not take_over:
        holder = path.read_text(encoding="utf-8").strip()
        raise LockedError(
            f"another application runs this pipeline already (process {holder or 'unknown'})",
            where=pipeline,
            next_step=f"Stop it first. If it hangs, take over with: headrace run {pipeline} --take-over",
        )
    try:
        if held is not None:
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        if held is not None:
            unlock(held)
