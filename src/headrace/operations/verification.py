"""Verify a pipeline: its topics, its captured database and its published tables."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.operations.compare.compare_published import compare_all_published
from headrace.operations.compare.compare_with_source import WAIT_SECONDS, Compared, compare_captured
from headrace.operations.verify.inspection import need_landed, verify
from headrace.operations.verify.verify import Verified
from headrace.servers.embedded import Report
from headrace.servers.kafka import kafka
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline


@dataclass(frozen=True)
class Verification:
    """The comparison of each stream with its topic, and of each captured and published table with Postgres."""

    streams: tuple[Verified, ...]
    tables: tuple[Compared, ...]

    @property
    def holds(self) -> bool:
        """Whether no row is missing, duplicated or different."""
        return all(stream.holds for stream in self.streams) and all(table.holds for table in self.tables)


def verify_pipeline(settings: Settings, pipeline: Pipeline, *, report: Report, seconds: float = WAIT_SECONDS) -> Verification:
    """Compare the lake with Kafka and Postgres. Waits up to `seconds` for the lake to catch up with Postgres.

    Raises a LandingError if nothing has been landed, before servers are started.
    """
    need_landed(settings, pipeline)
    with kafka(settings, report=report) as servers:
        # Published tables come first, because comparing a captured database may build tables.
        published = compare_all_published(settings, pipeline, report=report, seconds=seconds)
        captured = compare_captured(settings, pipeline, bootstrap_servers=servers, report=report, seconds=seconds)
        return Verification(verify(settings, pipeline, bootstrap_servers=servers), (*captured, *published))
