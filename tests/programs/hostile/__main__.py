"""Attack every HTTP server of Headrace and see that it stays: `make hostile`.

Without make: `python -m tests.programs.hostile [REQUESTS [SEED]]`.

Per server: REQUESTS (10,000) generated requests; 1,100 connections that send half a header and 200 that send half a body; 400
bodies of a megabyte and more, some compressed, at once; and for `serve` 100 parallel queries that need more memory, disk or
time than they may have. Meanwhile a well-behaved client asks ten times a second.

It fails on any 5xx, on a well-behaved request that is not answered, on memory that grows by more than a tenth after one smaller
round of everything, and on a log of more than a megabyte. Everything stays on this machine.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from headrace.servers.ports import find_free_port, is_free
from headrace.servers.postgres import start_postgres, stop_postgres
from headrace.settings import load_settings
from tests.programs.hostile.client import ask, ask_all, hold
from tests.programs.hostile.surfaces import SURFACES, Surface
from tests.support.waiting import wait_until

REQUESTS, SEED = 10_000, 20261117
WARM_UP_REQUESTS = 2_000
HALF_HEADERS, HALF_BODIES, HELD_SECONDS = 1_100, 200, 14.0
LONG_BODIES, HEAVY_QUERIES = 400, 100
HALF_HEADER = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-slow:"
PROBE_SECONDS, SLOWEST_SECONDS = 0.1, 5.0
MOST_GROWTH, MOST_LOG_BYTES, SETTLE_SECONDS = 1.10, 1_000_000, 3.0


@dataclass
class Probe:
    """What a well-behaved client heard: statuses, and seconds until each answer."""

    codes: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    async def run(self, port: int, surface: Surface) -> None:
        while True:
            for request in surface.probes():
                started = time.monotonic()
                self.codes[await ask(port, request)] += 1
                self.seconds.append(time.monotonic() - started)
                await asyncio.sleep(PROBE_SECONDS)


@dataclass
class Result:
    surface: str
    phases: dict[str, tuple[Counter[int], float]] = field(default_factory=dict)
    probe: Probe = field(default_factory=Probe)
    before: int = 0
    after: int = 0
    log_bytes: int = 0
    log_end: str = ""

    def failures(self) -> list[str]:
        """Return what is not as it should be."""
        sentences = []
        for phase, (codes, _) in self.phases.items():
            sentences += [f"{phase}: {count} x {code}" for code, count in codes.items() if code >= 500]
        wrong = {code: count for code, count in self.probe.codes.items() if code != 200}
        if wrong:
            sentences.append(f"the well-behaved client heard {wrong}")
        if max(self.probe.seconds) > SLOWEST_SECONDS:
            sentences.append(f"the well-behaved client waited for {max(self.probe.seconds):.1f} s")
        if self.after > self.before * MOST_GROWTH:
            sentences.append(f"memory grew from {self.before / 1e6:.0f} to {self.after / 1e6:.0f} MB")
        if self.log_bytes > MOST_LOG_BYTES:
            sentences.append(f"the log has {self.log_bytes:,} bytes")
        return sentences


@contextmanager
def running(surface: Surface, folder: Path, dsn: str) -> Iterator[tuple[int, psutil.Process, Path]]:
    """Yield a server's port, its process and its log."""
    port, log = find_free_port(), folder / "log"
    command = [sys.executable, "-m", "tests.programs.hostile.servers", surface.name, str(port), str(folder / "work"), dsn]
    (folder / "work").mkdir(parents=True)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: not is_free(port), what=f"the server of {surface.name}", seconds=60)
        yield port, psutil.Process(process.pid), log
    finally:
        process.terminate()
        process.wait(30)


async def attack(port: int, surface: Surface, *, requests: int, random: Random, share: float = 1.0) -> Result:
    """Return how a server answered all phases, of which each is this share of its full size."""
    result = Result(surface.name)
    probe = asyncio.ensure_future(result.probe.run(port, surface))

    async def run(phase: str, answered: Awaitable[Counter[int]]) -> None:
        started = time.monotonic()
        result.phases[phase] = (await answered, time.monotonic() - started)

    def number(full: int) -> int:
        return max(int(full * share), 1)

    seconds = HELD_SECONDS if share == 1.0 else 2.0
    await run("generated", ask_all(port, (surface.generate(random) for _ in range(requests))))
    await run("half headers", hold(port, HALF_HEADER, number=HALF_HEADERS, seconds=seconds))
    await run("half bodies", hold(port, surface.half_body, number=HALF_BODIES, seconds=seconds))
    bodies = [random.choice(surface.long_bodies) for _ in range(number(LONG_BODIES))]
    await run("long bodies", ask_all(port, bodies, at_once=len(bodies)))
    if surface.heavy:
        queries = [surface.heavy[at % len(surface.heavy)] for at in range(number(HEAVY_QUERIES))]
        await run("heavy queries", ask_all(port, queries, at_once=len(queries)))
    probe.cancel()
    return result


def attack_surface(surface: Surface, folder: Path, *, dsn: str, requests: int, seed: int) -> Result:
    random = Random(f"{seed} {surface.name}")
    with running(surface, folder, dsn) as (port, process, log):
        asyncio.run(attack(port, surface, requests=min(WARM_UP_REQUESTS, requests), random=random, share=0.5))
        time.sleep(SETTLE_SECONDS)
        before = process.memory_info().rss
        result = asyncio.run(attack(port, surface, requests=requests, random=random))
        time.sleep(SETTLE_SECONDS)
        result.before, result.after = before, process.memory_info().rss
    result.log_bytes = log.stat().st_size
    result.log_end = log.read_text(errors="replace")[-3_000:]
    return result


def show(result: Result) -> None:
    for phase, (codes, seconds) in result.phases.items():
        said = ", ".join(f"{count:,} x {code}" for code, count in sorted(codes.items()))
        print(f"  {result.surface:8} {phase:14} {sum(codes.values()):7,} {seconds:7.1f} s   {said}")
    waited = sorted(result.probe.seconds)
    middle, slowest = waited[len(waited) // 2] * 1_000, waited[-1] * 1_000
    print(
        f"  {result.surface:8} {'well-behaved':14} {len(waited):7,}             p50 {middle:.0f} ms, slowest {slowest:.0f} ms; "
        f"memory {result.before / 1e6:.0f} -> {result.after / 1e6:.0f} MB ({result.after / result.before - 1:+.1%}); "
        f"log {result.log_bytes:,} bytes",
        flush=True,
    )


def main(requests: int, seed: int) -> int:
    print(
        f"{requests:,} generated requests per server, seed {seed}. 0 is a connection that ended without an answer, -1 one held."
    )
    started = time.monotonic()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-hostile-") as name:
        settings = load_settings(flags={}, environ={"HEADRACE_POSTGRES_PORT": str(find_free_port())}, folder=Path(name))
        dsn = start_postgres(settings, detached=False, report=lambda sentence: None).dsn
        try:
            for surface in SURFACES:
                result = attack_surface(surface, Path(name) / surface.name, dsn=dsn, requests=requests, seed=seed)
                show(result)
                sentences = result.failures()
                failures += [f"{surface.name}: {problem}" for problem in sentences]
                if sentences:
                    print(result.log_end)
        finally:
            stop_postgres(settings)
    print(f"{time.monotonic() - started:.0f} s.", "FAILED: " + "; ".join(failures) if failures else "No 5xx; all held.")
    return 1 if failures else 0


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    sys.exit(main(*given, *(REQUESTS, SEED)[len(given) :]))
