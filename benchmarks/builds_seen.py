"""When each build of a table became visible, seen from outside, and which landed checkpoints it stands for.

A watcher reads the catalog's database every few milliseconds. When a table's metadata file changes, it reads the build's entry
in it, which says how far the build has read its inputs. From entry to entry that leads from a mart back to the raw tables.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.iceberg.ledgers.landing import KEY as LANDED
from headrace.iceberg.ledgers.landing import Ledger

_EVERY_SECONDS = 0.01


@dataclass
class BuildsSeen:
    """For each table its builds by number, and when (Unix time) each was first seen; for each raw table its checkpoints.

    A snapshot's own time can't be read later: landing keeps the newest ones alone.
    """

    builds: dict[str, dict[int, tuple[float, BuildLedger]]] = field(default_factory=lambda: defaultdict(dict))
    landed: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def checkpoint_of(self, way: Sequence[str], build_id: int) -> int | None:
        """Return the newest checkpoint that a build of `way[0]` stands for; `way` leads to the raw table, its last name.

        None where a build on the way was not seen, because the watcher came later.
        """
        position = build_id
        for table, source in pairwise(way):
            seen = self.builds[table].get(position)
            if seen is None:
                return None
            position = seen[1].reads[source].position
        return position

    def visible(self, way: Sequence[str]) -> list[tuple[int, float]]:
        """Return checkpoints and when each, with all before it, was visible at the end of the way."""
        checkpoints: list[tuple[int, float]] = []
        for build_id, (moment, entry) in sorted(self.builds[way[0]].items()):
            checkpoint = self.checkpoint_of(way, build_id) if entry.changed_in == build_id else None
            if checkpoint is not None and (not checkpoints or checkpoint > checkpoints[-1][0]):
                checkpoints.append((checkpoint, moment))
        return checkpoints


@contextmanager
def watch_builds(database: Path, tables: Sequence[str]) -> Iterator[BuildsSeen]:
    """Yield what is seen while the block runs. `tables` are names with their namespace."""
    seen = BuildsSeen()
    ended = threading.Event()

    def look() -> None:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)
        query = "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
        last: dict[str, str] = {}
        while not ended.wait(_EVERY_SECONDS):
            rows = connection.execute(query).fetchall()
            moment = time.time()
            for table, location in rows:
                if table in tables and location != last.get(table):
                    last[table] = location
                    _note(seen, table, location, moment)
        connection.close()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()


def _note(seen: BuildsSeen, table: str, location: str, moment: float) -> None:
    metadata = json.loads(Path(location.removeprefix("file://").removeprefix("file:")).read_text(encoding="utf-8"))
    if entry := metadata["properties"].get(KEY):
        build = BuildLedger.from_json(entry)
        seen.builds[table].setdefault(build.build_id, (moment, build))
    current = metadata.get("current-snapshot-id")
    summaries = [snapshot["summary"] for snapshot in metadata["snapshots"] if snapshot["snapshot-id"] == current]
    for ledger in (summary[LANDED] for summary in summaries if LANDED in summary):
        seen.landed[table].setdefault(Ledger.from_json(ledger).checkpoint_id, moment)
