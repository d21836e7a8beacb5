"""The handle on a side's process, and the tables that it made as anyone outside sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from pyiceberg.table import Table

from benchmarks.side import Order, Start
from benchmarks.streams import NAMESPACE
from headrace.iceberg.catalog.properties import catalog_properties
from headrace.iceberg.catalog.tables import open_catalog, table_location
from headrace.iceberg.files.storage import Storage
from headrace.spec.model.pipeline import TableName


class Competitor:
    """A side that has started. Use as a context manager: its process ends with the block."""

    def __init__(self, start: Start) -> None:
        self.start = start
        Path(start.home).mkdir(parents=True, exist_ok=True)
        with (Path(start.home) / "side.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.side", json.dumps(asdict(start))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._expect("ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Competitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def land(self, order: Order) -> None:
        """Comes back when everything there is has landed."""
        self._send(order.to_json())
        self._expect("done")

    def follow(self, order: Order) -> None:
        self._send(order.to_json())
        self._expect("following")

    def check(self) -> None:
        """Raise if the side has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the {self.start.side} side ended: see {self.start.home}/side.log")

    def end_following(self) -> None:
        self._send("")
        self._expect("done")

    def table(self, name: str) -> Table:
        return open_catalog(self.start.settings).load_table(f"{NAMESPACE}.{name}")

    def count(self, name: str) -> int:
        """Return how many rows the table has, as its current snapshot says."""
        snapshot = self.table(name).current_snapshot()
        return int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0

    def count_quarantined(self, label: str) -> int:
        """Return how many refused rows of one stream the quarantine has."""
        quarantine = open_catalog(self.start.settings).load_table("metadata.quarantine")
        return int(quarantine.scan(row_filter=f"stream = '{label}'", selected_fields=("offset",)).count())

    def drop_data(self, name: str) -> None:
        """Free the disk. The catalog still names the table, and nobody reads it again."""
        settings = self.start.settings
        filesystem, folder = Storage.of(catalog_properties(settings)).find(table_location(settings, TableName(NAMESPACE, name)))
        filesystem.delete_dir_contents(folder, missing_dir_ok=True)

    def _send(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        assert self._process.stdout
        answer = self._process.stdout.readline().strip()
        if answer != word:
            raise RuntimeError(f"the {self.start.side} side ended: see {self.start.home}/side.log")
