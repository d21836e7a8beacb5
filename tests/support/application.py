"""An application of Headrace as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.class_archive import spark_environ
from tests.support.waiting import wait_until

OURS = re.compile(r"HEADRACE_|KAFKA_|OUTPUT_PATH|WRITE_AHEAD|PYSPARK_|SPARK_|JAVA_HOME")


@dataclass
class Application:
    """One started command; its output goes to a file."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, *, seconds: float = 240.0) -> int:
        """Return the exit code; negative is the number of the signal that ended it."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.process.args!r} did not end in {seconds:.0f} s:\n{self.said()}") from None

    def wait_to_say(self, text: str, *, seconds: float = 180.0) -> None:
        def has_said() -> bool:
            assert text in self.said() or self.process.poll() is None, f"it ended without saying {text!r}:\n{self.said()}"
            return text in self.said()

        wait_until(has_said, what=f"{text!r} in:\n{self.log}", seconds=seconds)

    def wait_to_stop(self, *, seconds: float = 180.0) -> None:
        """Wait until SIGSTOP has stopped the process."""
        wait_until(
            lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED,
            what="the application to be stopped",
            seconds=seconds,
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """End the process, and wait until Spark, which ends with it, is gone too."""
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        _, alive = psutil.wait_procs(children, timeout=15)
        for child in alive:
            child.kill()


def start_headrace(*arguments: str, environ: Mapping[str, str], folder: Path) -> Application:
    """Starts `headrace` with the machine's environment, without what it has of ours, and `environ`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"said-{len(list(folder.glob('said-*')))}.txt"
    plain = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *arguments],
            env={**plain, **spark_environ(), **environ, "PYTHONFAULTHANDLER": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Application(process, log)


def find_processes(home: Path) -> list[psutil.Process]:
    """Return the living processes that were started for a home, by the environment that they all inherit."""
    processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HEADRACE_HOME") == str(home):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes
