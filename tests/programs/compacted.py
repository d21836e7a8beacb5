"""Maintains a lake for some minutes while it is landed, built and read, then holds it against the topic and a full refresh.

`make compacted MINUTES=10`. `headrace run` maintains every minute; beside it another application does so all the
time, keeps no snapshot that nobody needs, and deletes files a few minutes after the last that referred to them.
"""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Event as Flag
from threading import Thread

from confluent_kafka import Producer

from headrace.errors import LockedError
from headrace.iceberg.catalog.tables import open_catalog
from headrace.kafka.client import KafkaServers
from headrace.operations.maintain.maintaining import list_work, maintain_all
from headrace.operations.verify.inspection import verify
from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.servers.ports import find_free_port
from headrace.serving.sql.query import run_query
from headrace.sessions.building import build, building_session
from headrace.sessions.shared_spark import spark_session
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.layers import BUILD_ID, STATE
from tests.build.layer_lake import PIPELINE, SCHEMA, START, TABLES
from tests.support.application import start_headrace

EVENTS_PER_SECOND = 40
KEYS = 300
GRACE_MINUTES = 3
PAUSE_SECONDS = 5.0
TROUBLE = re.compile(
    r"failed:|failed with|failed and will be retried|could not be (?:built|written)|retrying|is stopped|has ended:|ended with"
    r"|skipped, because|Traceback"
)
ENTITIES = """/*
kind: entities
keys: [k]
sequence_by: n
oldest_by: at
match:
  owner: {from: g, as: exact, max_records: 100000}
*/
SELECT k, g, n, at FROM pond.events"""


@dataclass
class Seen:
    """What happened while the lake was maintained."""

    sent: int = 0
    rounds: int = 0
    compacted_files: int = 0
    snapshots: int = 0
    deleted_files: int = 0
    gave_way: int = 0
    by_run: int = 0
    queries: int = 0
    trouble: list[str] = field(default_factory=list)


def compacted(minutes: float, *, folder: Path, seed: int) -> bool:
    """Return whether no batch and no build failed, no row is missing, and every table is what a full refresh makes of it."""
    environ = {
        "HEADRACE_HOME": str(folder / ".headrace"),
        "HEADRACE_KAFKA_PORT": str(find_free_port()),
        "HEADRACE_MAINTAIN_EVERY_MINUTES": "1",
        "HEADRACE_MAINTAIN_GRACE_MINUTES": str(GRACE_MINUTES),
        "HEADRACE_MAINTAIN_TARGET_FILE_MB": "4",
    }
    _write_pipeline(folder)
    settings = load_settings(flags={}, environ=environ, folder=folder)
    pipeline = load_pipeline("pond", environ=environ, folder=folder)
    servers = KafkaServers(start_kafka(settings, detached=True, report=print).bootstrap_servers)
    seen, stop = Seen(), Flag()
    producer = Thread(target=_produce, args=(servers, pipeline.streams[0].topic, random.Random(seed), stop, seen))
    producer.start()
    application = start_headrace("run", "pond", environ=environ, folder=folder)
    application.wait_to_say("pond.latest  build", seconds=180)
    ends = time.monotonic() + minutes * 60
    reader = Thread(target=_read, args=(settings, stop, seen))
    reader.start()
    with spark_session(settings, report=print) as spark:
        impatient = replace(settings, maintain_keep_days=0)
        while time.monotonic() < ends and application.process.poll() is None:
            try:
                for maintained in maintain_all(impatient, spark, list_work(impatient, [pipeline])):
                    seen.compacted_files += max(0, maintained.before.files - maintained.after.files)
                    seen.snapshots += max(0, maintained.before.snapshots - maintained.after.snapshots)
                    seen.deleted_files += len(maintained.orphans.gone)
                    seen.gave_way += maintained.gave_way
                seen.rounds += 1
            except LockedError:  # headrace run maintains
                continue
            stop.wait(PAUSE_SECONDS)  # headrace run wants to maintain, too
    stop.set()
    producer.join()
    reader.join()
    application.signal(signal.SIGINT)
    code = application.wait(seconds=180)
    said = application.said()
    seen.trouble += [line for line in said.splitlines() if TROUBLE.search(line)]
    seen.by_run = said.count("  maintained: ")
    if code:
        seen.trouble.append(f"headrace run ended with {code}: {said[-2_000:]}")
    batches, built = said.count("  checkpoint "), said.count("  build ")
    ended = start_headrace("land", "pond", "--once", environ=environ, folder=folder)
    assert ended.wait(seconds=300) == 0, ended.said()
    holds = _report(settings, pipeline, servers, seen, batches=batches, built=built)
    stop_kafka(settings)
    return holds


def _write_pipeline(folder: Path) -> None:
    home = folder / "pipelines" / "pond"
    for name, text in {"pipeline.yml": PIPELINE, "schemas/event.sql": SCHEMA, "c/owners.sql": ENTITIES, **TABLES}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")


def _produce(servers: KafkaServers, topic: str, chance: random.Random, stop: Flag, seen: Seen) -> None:
    producer = Producer(servers.client(linger_ms=5, enable_idempotence=True))
    while not stop.wait(1.0):
        for _ in range(EVENTS_PER_SECOND):
            number = seen.sent
            event = {
                "id": f"e{number}",
                "k": f"k{chance.randrange(KEYS)}",
                "g": f"g{chance.randrange(KEYS // 3)}",
                "n": number,
                "amount": f"{chance.randrange(1, 90_000) / 100:.2f}",
                "op": chance.choice("uuuuuuuuud"),
                "at": (START + timedelta(minutes=chance.randrange(4_000))).isoformat(),
                "tags": {"g": "x"},
            }
            producer.produce(topic, json.dumps(event).encode())
            seen.sent += 1
        producer.flush(60)


def _read(settings: Settings, stop: Flag, seen: Seen) -> None:
    """Ask for a table over and over: no answer may miss a file."""
    catalog = open_catalog(settings)
    while not stop.wait(1.0):
        try:
            run_query(catalog, "SELECT count(*), sum(n) FROM pond.events")
            run_query(catalog, "SELECT count(*), sum(n) FROM pond.latest")
            seen.queries += 2
        except Exception as error:
            seen.trouble.append(f"a query failed: {error}")


def _report(settings: Settings, pipeline: Pipeline, servers: KafkaServers, seen: Seen, *, batches: int, built: int) -> bool:
    (stream,) = verify(settings, pipeline, bootstrap_servers=servers)
    catalog = open_catalog(settings)
    with building_session(settings, pipeline, report=print) as lake:
        build(lake)
        before = {str(table.table): _rows(settings, str(table.table)) for table in pipeline.tables}
        outcomes = build(lake, full_refresh=True)
    seen.trouble += [f"{outcome.table.table}: {outcome.error}" for outcome in outcomes if outcome.error]
    differing = [name for name, rows in before.items() if rows != _rows(settings, name)]
    files = {name: len(list(catalog.load_table(name).scan().plan_files())) for name in ("pond.events", "pond.latest")}
    print(
        f"{batches} checkpoints and {built} builds beside {seen.rounds} rounds of maintenance: {seen.compacted_files:,} files "
        f"fewer, {seen.snapshots:,} snapshots fewer, {seen.deleted_files:,} files deleted; it gave way {seen.gave_way} times; "
        f"headrace run maintained {seen.by_run} tables; "
        f"{seen.queries} queries answered meanwhile; files now: {files}"
    )
    print(
        f"sent {seen.sent:,}, in the topic {stream.in_topic:,}, landed {stream.landed:,}, missing {stream.missing}, "
        f"doubled {stream.doubled}, unlogged {stream.unlogged}; tables that differ from a full refresh: {differing or 'none'}"
    )
    for line in seen.trouble[:20]:
        print(f"trouble: {line}")
    whole = stream.holds and not stream.waiting and stream.landed == stream.in_topic == seen.sent > 0
    return whole and not differing and not seen.trouble and bool(seen.rounds and seen.compacted_files and seen.by_run)


def _rows(settings: Settings, name: str) -> Counter[str]:
    stored = open_catalog(settings).load_table(name).scan().to_arrow()
    stored = stored.drop_columns([column for column in (BUILD_ID, STATE) if column in stored.column_names])
    return Counter(repr(sorted(row.items())) for row in stored.to_pylist())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        holds = compacted(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, folder=Path(scratch), seed=int(time.time()))
    print("no batch failed, no row is missing" if holds else "IT DID NOT HOLD: see above")
    sys.exit(0 if holds else 1)
