"""Requests to erase a person that wait while a pipeline runs: they are told, and carried out by a command of their own.

An erasure deletes files for good, so it runs while nothing lands or builds; and who is meant may need a decision.
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
    """Tells how many requests have come; each is told once."""

    lake: Lake
    report: Report
    _seen: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Reports requests that have come since the last look. Costs a look at a ledger where nothing has."""
        people, pipeline = self.lake.pipeline.people, self.lake.pipeline
        for number, asked in enumerate(people.requests if people else ()):
            name = pipeline.stream(asked.stream).table
            table = load_table(self.lake.catalog, name)
            now = read_ledger(table).checkpoint_id if table else 0
            seen = self._seen.get(number, 0)
            if now == seen:
                continue
            count = count_requests(self.lake.small, pipeline, asked, after=seen)
            self._seen[number] = now
            if count:
                what = "1 request to erase a person waits" if count == 1 else f"{count} requests to erase a person wait"
                self.report(f"{name}: {what}. Stop this, then run: headrace forget {pipeline.name} --requested")
