"""Receiving over HTTP: `/log` of the weather pipeline against a FastAPI handler that does nothing, in turns, 64 connections.

Every request has a city of its own. At the end all cities that were acknowledged must be in the lake, each as often as it was
acknowledged: once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from urllib.parse import quote

from benchmarks.bench import Bench
from benchmarks.load import Load, drive
from benchmarks.results import Bar, at_least, at_most
from benchmarks.servers import running_server
from headrace.runs.inspection import verify
from headrace.services.ports import find_free_port
from headrace.settings import Settings, load_settings
from headrace.spec import load_pipeline
from headrace.tables.catalog import open_catalog

CONNECTIONS = 64
TURNS = 3
SHARE = 0.6
_SECONDS = 10.0
_WARM_UP_SECONDS = 3.0
REQUESTS: dict[str, Callable[[str], bytes]] = {
    "headrace": lambda name: _get(f"/log?city={quote(name)}&temperature=72.5"),
    "bare": lambda name: _get("/log"),
}


def compare_receiving(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Gives back requests per second and the slowest hundredth of both sides, and whether every acknowledged record is kept."""
    seconds = _SECONDS / 5 if bench.quick else _SECONDS
    folder = (bench.folder / "receive").resolve()
    folder.mkdir()
    environ = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bench.bootstrap_servers, "HEADRACE_HOME": str(folder / ".headrace")}
    turns: dict[str, list[Load]] = {side: [] for side in REQUESTS}
    ports = {side: find_free_port() for side in REQUESTS}
    receive = ("headrace.cli", "receive", "weather", "--port", str(ports["headrace"]))
    with (
        running_server(folder, environ, *receive, port=ports["headrace"]),
        running_server(folder, environ, "benchmarks.bare", str(ports["bare"]), port=ports["bare"]),
    ):
        for number in range(TURNS + 1):
            for side, request in REQUESTS.items():
                length = seconds if number else min(seconds, _WARM_UP_SECONDS)
                prefix = f"{side}-{number}"
                load = drive(ports[side], request, prefix=prefix, connections=CONNECTIONS, seconds=length)
                turns[side].append(load)
                bench.say(f"Receive: {side} {load.per_second:,.0f} requests/s, p99 {load.p99_ms:.1f} ms")
    acknowledged = [name for load in turns["headrace"] for name in load.acknowledged]
    missing, doubled, in_topic = _hold_against_the_lake(folder, environ, acknowledged)
    bench.say(f"Receive: {len(acknowledged):,} acknowledged, {missing} missing in the lake, {doubled} twice")
    measured = {side: loads[1:] for side, loads in turns.items()}  # the first turn warms up
    rows: list[dict[str, object]] = [
        {
            "side": side,
            "requests_per_second": round(median(load.per_second for load in loads)),
            "p99_ms": round(median(load.p99_ms for load in loads), 1),
            "refused": sum(load.refused for load in loads),
            "acknowledged": len(acknowledged) if side == "headrace" else None,
            "in_topic": in_topic if side == "headrace" else None,
            "not_once_in_the_lake": missing + doubled if side == "headrace" else None,
            "turns": [{"requests_per_second": round(load.per_second), "p99_ms": round(load.p99_ms, 1)} for load in loads],
        }
        for side, loads in measured.items()
    ]
    share = median(load.per_second for load in measured["headrace"]) / median(load.per_second for load in measured["bare"])
    return rows, (
        at_least(SHARE, share, name="requests/s of /log against a handler that does nothing"),
        at_most(0, missing + doubled, name="acknowledged records that are not in the lake exactly once"),
    )


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()


def _hold_against_the_lake(folder: Path, environ: dict[str, str], acknowledged: list[str]) -> tuple[int, int, int]:
    """Lands the topic; gives back how many acknowledged names are missing, how many are there twice, and the messages."""
    command = [sys.executable, "-m", "headrace.cli", "land", "weather", "--once"]
    subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
    settings: Settings = load_settings(flags={}, environ=environ, folder=folder)
    pipeline = load_pipeline("weather", environ=environ, folder=folder)
    (found,) = verify(settings, pipeline, bootstrap_servers=environ["KAFKA_BOOTSTRAP_SERVERS"])
    table = open_catalog(settings).load_table(str(pipeline.streams[0].table))
    landed = Counter(table.scan(selected_fields=("city",)).to_arrow()["city"].to_pylist())
    missing = sum(name not in landed for name in acknowledged) + found.missing
    return missing, sum(landed[name] > 1 for name in acknowledged) + found.doubled, found.in_topic
