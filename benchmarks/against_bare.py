"""A pipeline's server against a FastAPI handler that does nothing, in turns on the same machine, over 64 connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.bench import Bench
from benchmarks.load import Load, drive
from benchmarks.servers import running_server
from headrace.servers.ports import find_free_port

CONNECTIONS = 64
TURNS = 3
_SECONDS = 10.0
_WARM_UP_SECONDS = 3.0

Request = Callable[[str], bytes]


@dataclass(frozen=True)
class Turns:
    """The turns of each side, of which the first warms up and is not counted."""

    loads: Mapping[str, list[Load]]

    @property
    def acknowledged(self) -> list[str]:
        """The names of all requests that the pipeline's server answered with 200."""
        return [name for load in self.loads["headrace"] for name in load.acknowledged]

    @property
    def share(self) -> float:
        """How much the pipeline's server does of what the bare handler does."""
        return self._per_second("headrace") / self._per_second("bare")

    def rows(self) -> list[dict[str, object]]:
        return [
            {
                "side": side,
                "requests_per_second": round(self._per_second(side)),
                "p99_ms": round(median(load.p99_ms for load in loads[1:]), 1),
                "refused": sum(load.refused for load in loads[1:]),
                "turns": [
                    {"requests_per_second": round(load.per_second), "p99_ms": round(load.p99_ms, 1)} for load in loads[1:]
                ],
            }
            for side, loads in self.loads.items()
        ]

    def _per_second(self, side: str) -> float:
        return median(load.per_second for load in self.loads[side][1:])


def take_turns(
    bench: Bench, pipeline: str, *, folder: Path, environ: dict[str, str], headrace: Request, bare: Request
) -> Turns:
    """Return the turns of `headrace receive PIPELINE` and of the bare handler, each sent its own requests."""
    requests = {"headrace": headrace, "bare": bare}
    seconds = _SECONDS / 5 if bench.quick else _SECONDS
    loads: dict[str, list[Load]] = {side: [] for side in requests}
    ports = {side: find_free_port() for side in requests}
    receive = ("headrace.cli", "receive", pipeline, "--port", str(ports["headrace"]))
    with (
        running_server(folder, environ, *receive, port=ports["headrace"]),
        running_server(folder, environ, "benchmarks.bare", str(ports["bare"]), port=ports["bare"]),
    ):
        for number in range(TURNS + 1):
            for side, request in requests.items():
                length = seconds if number else min(seconds, _WARM_UP_SECONDS)
                load = drive(ports[side], request, prefix=f"{side}-{number}", connections=CONNECTIONS, seconds=length)
                loads[side].append(load)
                bench.say(f"{pipeline.capitalize()}: {side} {load.per_second:,.0f} requests/s, p99 {load.p99_ms:.1f} ms")
    return Turns(loads)
