"""What a process and all its children cost: CPU seconds and resident memory.

CPU is user and system time of every process of the tree, Python workers included, ended ones included as they were
last seen. Memory is the sum of the processes' proportional set sizes (PSS, from `smaps_rollup`): a page that several share is
counted once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_CPU_EVERY_SECONDS = 0.1
_MEMORY_EVERY = 5
"""Memory is read at every fifth look: the kernel walks all pages of a process for it."""


@dataclass
class Reading:
    """What was measured: filled in when the block ends."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    memory: list[tuple[float, int]] = field(default_factory=list)


@contextmanager
def measure(pid: int) -> Iterator[Reading]:
    """Yield what the tree under `pid` costs while the block runs."""
    tree = _Tree(pid)
    reading = Reading()
    ended = threading.Event()
    started = time.monotonic()

    def look() -> None:
        turn = 0
        while not ended.wait(_CPU_EVERY_SECONDS):
            tree.look()
            turn += 1
            if turn % _MEMORY_EVERY == 0:
                reading.memory.append((time.monotonic() - started, tree.memory()))

    tree.look()
    before = tree.cpu_seconds
    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield reading
    finally:
        reading.seconds = time.monotonic() - started
        ended.set()
        watcher.join()
        tree.look()
        reading.cpu_seconds = tree.cpu_seconds - before
        reading.memory.append((reading.seconds, tree.memory()))
        reading.peak_bytes = max(size for _, size in reading.memory)


def read_cpu(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds of each tree so far; children that ended count with who waited for them."""
    return {name: sum(map(_cpu_of, _processes(psutil.Process(pid)))) for name, pid in pids.items()}


def read_waiting(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the seconds in which each tree was ready to run and had no core, as far as the first thread of each process
    goes, which does the work of a Python worker; 0 where the kernel does not count them."""
    return {name: sum(_waited(process.pid) for process in _processes(psutil.Process(pid))) for name, pid in pids.items()}


def read_busy() -> float:
    """Return the CPU seconds that all processes of the machine have used since it started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


class _Tree:
    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[tuple[int, float], float] = {}

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu.values())

    def look(self) -> None:
        for process in self._processes():
            try:
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue

    def memory(self) -> int:
        return sum(_resident(process.pid) for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        return _processes(self._root)


def _processes(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _cpu_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _waited(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
