"""Run a function in a thread for as long as a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread


@contextmanager
def in_background(work: Callable[[], object], *, name: str, end: Callable[[], object]) -> Iterator[None]:
    """Run `work` in a thread called `name` during the block.

    After the block, also if it fails, `end` asks the thread to stop, and the thread is waited for.
    """
    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end()
        thread.join()
