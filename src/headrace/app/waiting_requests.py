"""Report pending erasure requests while a pipeline runs; `headrace erase` carries them out.

An erasure deletes files permanently, so it runs while nothing lands or builds, and which person it means may need a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.operations.erase.requests import count_requests
from headrace.servers.embedded import Report


@dataclass
class WaitingRequests:
    """Reports new erasure requests, each once."""

    lake: Lake
    report: Report
    _checkpoints: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Report the requests that have landed since the last call. Without new ones, reads only the ledgers."""
        people, pipeline = self.lake.pipeline.people, self.lake.pipeline
        for number, request in enumerate(people.requests if people else ()):
            name = pipeline.stream(request.stream).table
            table = load_table(self.lake.catalog, name)
            now = read_ledger(table).checkpoint_id if table else 0
            last = self._checkpoints.get(number, 0)
            if now == last:
                continue
            count = count_requests(self.lake.small, pipeline, request, after=last)
            self._checkpoints[number] = now
            if count:
                what = f"{count} pending erasure request{'' if count == 1 else 's'}"
                self.report(f"{name}: {what}. Stop this command, then run: headrace erase {pipeline.name} --requested")
