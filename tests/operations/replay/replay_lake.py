"""A small pipeline for replays: one stream whose schema was too narrow at first, and downstream tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from headrace.kafka.client import KafkaServers
from headrace.operations.replay.choice import ReplayRequest
from headrace.operations.replay.replaying import Replayed, ReplaySession, replay
from headrace.sessions.building import build, open_lake
from headrace.sessions.retry_policy import RetryPolicy
from headrace.spec import Pipeline
from tests.support.folders import write_files
from tests.support.lake import Lake
from tests.support.topics import make_topic, producer_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NARROW = "id STRING, n INT"
NAMED = "id STRING, n INT, name STRING"
WIDE = "id STRING, n BIGINT, name STRING"
BIG = 3_000_000_000
"""A number that the narrow schema refuses."""

FILES = {
    "pipeline.yml": """\
name: shelf
about: Things, and where they are counted.
streams:
  things: {topic: TOPIC, format: json, schema: schemas/thing.sql, table: raw.things, partition_by: [days(kafka_timestamp)]}
""",
    "schemas/thing.sql": NARROW,
    "staging/latest.sql": """/*
keys: [id]
sequence_by: n
expect:
  the number is small: {that: n < 1000 OR n > 2000000000, on_failure: quarantine}
*/
SELECT id, n FROM raw.things""",
    "marts/counted.sql": """/*
keys: [id]
*/
SELECT id, count(*) AS things, max(n) AS newest FROM staging.latest GROUP BY id""",
    "marts/looked_up.sql": """/*
frozen: [marts.counted]
*/
SELECT t.id, c.newest FROM raw.things AS t LEFT JOIN marts.counted AS c ON c.id = t.id""",
}


@dataclass
class ReplayLake:
    """The pipeline in a test's lake, with all or the first few tables. Message `i` is `i` hours younger than the first."""

    lake: Lake
    spark: SparkSession
    tables: int = 3
    sent: int = 0

    def __post_init__(self) -> None:
        make_topic(self.lake.servers, self.lake.topic, partitions=2)
        self.write({})

    def write(self, files: Mapping[str, str]) -> None:
        text = FILES["pipeline.yml"].replace("TOPIC", self.lake.topic)
        few = dict(list(FILES.items())[: 2 + self.tables])
        write_files(self.lake.folder / "pipelines" / "shelf", {**few, "pipeline.yml": text, **files})

    @property
    def pipeline(self) -> Pipeline:
        return self.lake.pipeline("shelf")

    def send(self, values: Sequence[bytes | Mapping[str, object]]) -> None:
        """Send messages to the two partitions in turn."""
        producer = producer_of(self.lake.servers)
        for value in values:
            at = round((START + timedelta(hours=self.sent)).timestamp() * 1_000)
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.lake.topic, text, partition=self.sent % 2, timestamp=at)
            self.sent += 1
        assert producer.flush(30) == 0

    def land(self) -> None:
        self.lake.land(self.spark, self.pipeline)

    def build(self) -> None:
        outcomes = build(open_lake(self.lake.settings(), self.pipeline, self.spark))
        assert not [outcome.error for outcome in outcomes if outcome.error]

    def replay(self, request: ReplayRequest, *, dry_run: bool = False, retry_policy: RetryPolicy | None = None) -> Replayed:
        lake = open_lake(self.lake.settings(), self.pipeline, self.spark)
        return replay(ReplaySession(lake, KafkaServers(self.lake.servers)), request, dry_run=dry_run, retry_policy=retry_policy)

    def rows(self, name: str, *columns: str) -> list[dict[str, Any]]:
        rows = self.lake.rows(name, *columns)
        return sorted(rows, key=lambda row: [str(row[column]) for column in columns])

    def check(self, *, landed: int, refused: int) -> None:
        """Compare the lake with the topic: each message is in it exactly once."""
        (verified,) = self.lake.verify(self.pipeline)
        assert verified.holds, verified
        assert (verified.landed, verified.quarantined, verified.waiting) == (landed, refused, 0)


def thing(number: int, *, n: int | None = None) -> dict[str, object]:
    return {"id": f"thing-{number % 5}", "n": number if n is None else n, "name": f"name {number}"}


def hours(number: int) -> datetime:
    return START + timedelta(hours=number)
