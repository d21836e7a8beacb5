"""Python modules that run as servers while something is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.servers.ports import is_free

_START_SECONDS = 60.0


@contextmanager
def running_server(folder: Path, environ: dict[str, str], *module: str, port: int) -> Iterator[None]:
    """Run a Python module as a server while the block runs."""
    source = Path(__file__).parents[1]
    paths = os.pathsep.join((str(source), environ.get("PYTHONPATH", "")))
    with (folder / f"{module[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *module], cwd=folder, env={**environ, "PYTHONPATH": paths}, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while is_free(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{module[0]} did not start: see its log in the folder of the benchmark")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
