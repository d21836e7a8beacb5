"""Claims on tables that a replay is about to rebuild: a live run does not build them until they are released.

A claim is a file beside the replay's lock. It is valid only while the process that holds the lock is alive.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from headrace.sessions.lock import is_replaying
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName


@dataclass
class Claims:
    """The claim of a running replay. `release` removes a table from it."""

    path: Path
    tables: set[TableName]
    _lock: Lock = field(default_factory=Lock)

    def release(self, table: TableName) -> None:
        with self._lock:
            self.tables.discard(table)
            self.write()

    def write(self) -> None:
        hidden = self.path.with_suffix(".inprogress")
        hidden.write_text(json.dumps(sorted(str(table) for table in self.tables)), encoding="utf-8")
        hidden.rename(self.path)


@contextmanager
def claim_tables(settings: Settings, pipeline: str, tables: Collection[TableName]) -> Iterator[Claims]:
    """Claim tables during the block, in a process that holds the pipeline's replay lock."""
    claims = Claims(_path(settings, pipeline), set(tables))
    claims.path.parent.mkdir(parents=True, exist_ok=True)
    claims.write()
    try:
        yield claims
    finally:
        claims.path.unlink(missing_ok=True)


def read_claims(settings: Settings, pipeline: str) -> frozenset[TableName]:
    """Return the tables that a running replay is about to rebuild."""
    try:
        names = json.loads(_path(settings, pipeline).read_text(encoding="utf-8"))
    except OSError:
        return frozenset()
    return frozenset(TableName.parse(name) for name in names) if is_replaying(settings, pipeline) else frozenset()


def _path(settings: Settings, pipeline: str) -> Path:
    return settings.home / "locks" / f"{pipeline}.replay.json"
