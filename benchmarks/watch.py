"""When each snapshot became visible, seen from outside, and how old its rows were then.

A watcher reads the catalog's database every few milliseconds and notes when a table's metadata file changes. Metadata files are
numbered, and every commit of these tables makes one snapshot, so the number of the file is the sequence number of the snapshot.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from benchmarks.streams import NAMESPACE

_EVERY_SECONDS = 0.005
_NUMBER = re.compile(r"/(\d+)-[^/]*\.metadata\.json$")


@dataclass
class Sightings:
    """For each table, the numbers of its metadata files and when (Unix time) each was first seen."""

    seen: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def visible_at(self, table: str, sequence_number: int) -> float:
        return next(moment for number, moment in self.seen[table] if number >= sequence_number)


@contextmanager
def watch_catalog(database: Path) -> Iterator[Sightings]:
    """Yield what is seen while the block runs."""
    sightings = Sightings()
    ended = threading.Event()

    def look() -> None:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)
        query = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = ?"
        last: dict[str, str] = {}
        while not ended.wait(_EVERY_SECONDS):
            for table, location in connection.execute(query, (NAMESPACE,)).fetchall():
                if location != last.get(table):
                    last[table] = location
                    sightings.seen[table].append((_number(location), time.time()))
        connection.close()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield sightings
    finally:
        ended.set()
        watcher.join()


def read_ages(table: Table, sightings: Sightings, *, name: str) -> list[tuple[float, float]]:
    """Return, for every row, when it was produced and how many seconds later it was visible."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    if snapshot.sequence_number != _number(table.metadata_location):
        raise RuntimeError(f"{name} has commits without a snapshot: its metadata files can't tell when a snapshot was visible")
    ages: list[tuple[float, float]] = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            visible = sightings.visible_at(name, entry.sequence_number or 0)
            ages += [(produced, visible - produced) for produced in _produced_at(entry.data_file.file_path)]
    return ages


def _produced_at(uri: str) -> list[float]:
    column = pq.read_table(uri.removeprefix("file://").removeprefix("file:"), columns=["kafka_timestamp"]).column(0)
    micros: list[int] = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [moment / 1_000_000 for moment in micros]


def _number(location: str) -> int:
    match = _NUMBER.search(location)
    if match is None:
        raise RuntimeError("a metadata file without a number")
    return int(match.group(1))
