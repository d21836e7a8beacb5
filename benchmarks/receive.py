"""Receiving over HTTP: `/log` of the weather pipeline against a FastAPI handler that does nothing, in turns, 64 connections.

Every request has a city of its own. At the end all cities that were acknowledged must be in the lake, each as often as it was
acknowledged: once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import quote

from benchmarks.against_bare import take_turns
from benchmarks.bench import Bench
from benchmarks.results import Bar, at_least, at_most
from headrace.iceberg.catalog.tables import open_catalog
from headrace.kafka.client import KafkaServers
from headrace.operations.verify.inspection import verify
from headrace.settings import Settings, load_settings
from headrace.spec import load_pipeline

SHARE = 0.6


def compare_receiving(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return requests per second and the slowest hundredth of both sides, and whether every acknowledged record is kept."""
    folder = (bench.folder / "receive").resolve()
    folder.mkdir()
    environ = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bench.bootstrap_servers, "HEADRACE_HOME": str(folder / ".headrace")}
    turns = take_turns(
        bench,
        "weather",
        folder=folder,
        environ=environ,
        headrace=lambda name: _get(f"/log?city={quote(name)}&temperature=72.5"),
        bare=lambda name: _get("/log"),
    )
    acknowledged = turns.acknowledged
    missing, doubled, in_topic = _hold_against_the_lake(folder, environ, acknowledged)
    bench.say(f"Receive: {len(acknowledged):,} acknowledged, {missing} missing in the lake, {doubled} twice")
    counts = {"acknowledged": len(acknowledged), "in_topic": in_topic, "not_once_in_the_lake": missing + doubled}
    rows = [{**row, **(counts if row["side"] == "headrace" else dict.fromkeys(counts))} for row in turns.rows()]
    return rows, (
        at_least(SHARE, turns.share, name="requests/s of /log against a handler that does nothing"),
        at_most(0, missing + doubled, name="acknowledged records that are not in the lake exactly once"),
    )


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()


def _hold_against_the_lake(folder: Path, environ: dict[str, str], acknowledged: list[str]) -> tuple[int, int, int]:
    """Land the topic, and return how many acknowledged names are missing, how many are there twice, and the messages."""
    command = [sys.executable, "-m", "headrace.cli", "land", "weather", "--once"]
    subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
    settings: Settings = load_settings(flags={}, environ=environ, folder=folder)
    pipeline = load_pipeline("weather", environ=environ, folder=folder)
    (verified,) = verify(settings, pipeline, bootstrap_servers=KafkaServers(environ["KAFKA_BOOTSTRAP_SERVERS"]))
    table = open_catalog(settings).load_table(str(pipeline.streams[0].table))
    landed = Counter(table.scan(selected_fields=("city",)).to_arrow()["city"].to_pylist())
    missing = sum(name not in landed for name in acknowledged) + verified.missing
    return missing, sum(landed[name] > 1 for name in acknowledged) + verified.doubled, verified.in_topic
