"""Commands of Headrace as processes of their own, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import Bench

_END_SECONDS = 60.0


@contextmanager
def headrace(bench: Bench, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a `headrace` command as a process, which ends with the block as by Ctrl-C."""
    environ = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bench.bootstrap_servers}
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *arguments], cwd=folder, env=environ, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(
    is_so: Callable[[], bool],
    processes: Sequence[subprocess.Popen[bytes]],
    *,
    seconds: float,
    what: str,
    every: float = 0.2,
) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if any(process.poll() is not None for process in processes):
            raise RuntimeError("a headrace command ended: see the logs in the folder of the benchmark")
        if time.monotonic() > deadline:
            raise RuntimeError(what)
        time.sleep(every)
