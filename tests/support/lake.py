"""A lake of a test's own: a working folder with its catalog and warehouse, and a topic. Broker and Spark are shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import load_table, open_catalog
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.landed import Batch
from headrace.landing.lander import Lander
from headrace.landing.topic_choice import ReplacedTopic
from headrace.operations.verify.inspection import commits_of, verify
from headrace.operations.verify.log_history import files_of
from headrace.operations.verify.verify import Verified
from headrace.sessions.landing import Session, land
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from tests.support.application import Application, start_headrace
from tests.support.command import run_command
from tests.support.topics import TRUNCATED, Sent, lineage_events, lineage_values, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Lake:
    """`topic` is the lineage pipeline's; other pipelines are folders under `folder/pipelines` that a test writes."""

    folder: Path
    servers: str
    topic: str
    applications: list[Application] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / ".headrace"

    @property
    def environ(self) -> dict[str, str]:
        return {"HEADRACE_HOME": str(self.home), "KAFKA_BOOTSTRAP_SERVERS": self.servers, "KAFKA_TOPIC": self.topic}

    def settings(self, **environ: str) -> Settings:
        return load_settings(flags={}, environ={**self.environ, **environ}, folder=self.folder)

    def pipeline(self, name: str = "lineage", **environ: str) -> Pipeline:
        return load_pipeline(name, environ={**self.environ, **environ}, folder=self.folder)

    @property
    def catalog(self) -> Catalog:
        return open_catalog(self.settings())

    def table(self, name: str) -> Table:
        return self.catalog.load_table(name)

    def start(self, *arguments: str, **environ: str) -> Application:
        """Start a command as a process of its own, which ends with the test at the latest."""
        application = start_headrace(*arguments, environ={**self.environ, **environ}, folder=self.folder)
        self.applications.append(application)
        return application

    def run(self, *arguments: str, **environ: str) -> str:
        """Run a command that must succeed, and return what it said."""
        application = self.start(*arguments, **environ)
        code = application.wait()
        assert code == 0, f"{arguments} ended with {code}:\n{application.said()}"
        return application.said()

    def command(self, *arguments: str, spark: SparkSession | None = None, **environ: str) -> str:
        """Run a command in this process, which saves the seconds of a start, and return its output.

        One that needs Spark gets the session that all tests share.
        """
        code, said = self.try_command(*arguments, spark=spark, **environ)
        assert code == 0, f"{arguments} ended with {code}:\n{said}"
        return said

    def try_command(self, *arguments: str, spark: SparkSession | None = None, **environ: str) -> tuple[int, str]:
        """Run a command in this process and return its exit code and its output."""
        return run_command(*arguments, environ={**self.environ, **environ}, folder=self.folder, spark=spark)

    def lander(self, pipeline: Pipeline | None = None, **environ: str) -> Lander:
        settings = self.settings(**environ)
        return Lander(
            settings,
            pipeline or self.pipeline(**environ),
            catalog=self.catalog,
            admin=admin_client(KafkaServers(self.servers)),
            consumer={"bootstrap.servers": self.servers},
            find_registry=lambda: settings.registry_url or "",
        )

    def land(
        self,
        spark: SparkSession,
        pipeline: Pipeline | None = None,
        *,
        accept_gaps: bool = False,
        replaced_topic: ReplacedTopic | None = None,
        **environ: str,
    ) -> list[Batch]:
        """Land all there is in this process, as `headrace land --once` does."""
        pipeline = pipeline or self.pipeline(**environ)
        lander = self.lander(pipeline, **environ)
        if replaced_topic:
            lander.accept_replaced(replaced_topic)
        if accept_gaps:
            lander.accept_gaps()
        session = Session(self.settings(**environ), pipeline, KafkaServers(self.servers), lander, spark)
        batches: list[Batch] = []
        land(session, once=True, stop=Event(), landed=batches.append, report=lambda sentence: None)
        return batches

    def verify(self, pipeline: Pipeline | None = None) -> tuple[Verified, ...]:
        return verify(self.settings(), pipeline or self.pipeline(), bootstrap_servers=KafkaServers(self.servers))

    def rows(self, name: str, *columns: str) -> list[dict[str, Any]]:
        scan = self.table(name).scan(selected_fields=columns or ("*",))
        return list(scan.to_arrow().to_pylist())

    def quarantine(self, label: str) -> list[dict[str, Any]]:
        """Return the refused rows of a stream, by partition and offset."""
        rows = [row for row in self.rows(str(QUARANTINE)) if row["stream"] == label]
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def send_lineage(
    lake: Lake, count: int, *, seed: int, partitions: int = 1, bad_every: int = 400
) -> tuple[list[Sent], dict[tuple[int, int], dict[str, object]]]:
    """Send events of the lineage pipeline, some truncated.

    Returns the messages, and the events that must become rows by their partition and offset.
    """
    values = lineage_values(count, seed=seed, bad_every=bad_every)
    sent = produce(lake.servers, lake.topic, values, partitions=partitions)
    events = dict(zip(values, lineage_events(count, seed=seed), strict=True))
    whole = [one for one in sent if one.value and len(one.value) > TRUNCATED]
    return sent, {(one.partition, one.offset): events[one.value] for one in whole}


def check_exactly_once(lake: Lake, sent: Iterable[Sent], *, good: Mapping[tuple[int, int], Mapping[str, object]]) -> None:
    """Hold the lineage table against what was sent: each message is once in the table or once in the quarantine, as it was.

    `good` are the rows that must be in the table, by partition and offset; all other messages must be in the quarantine.
    """
    check_verified(lake)
    columns = ("kafka_partition", "kafka_offset", *sorted({name for row in good.values() for name in row}))
    landed = lake.rows("lineage.events", *columns)
    counted = Counter(tuple(row[name] for name in columns) for row in landed)
    wanted = Counter((*at, *(row[name] for name in columns[2:])) for at, row in good.items())
    assert counted == wanted
    refused = Counter((row["partition"], row["offset"], row["original_bytes"]) for row in lake.quarantine("lineage.events"))
    assert refused == Counter((one.partition, one.offset, one.value) for one in sent if (one.partition, one.offset) not in good)


def check_verified(lake: Lake, *pipelines: Pipeline) -> None:
    """Compare the lake with the topics, and the commit logs against the tables' files; all pipelines of the lake are named,
    or it has but lineage."""
    looked_at = pipelines or (lake.pipeline(),)
    check_landed_once(lake, *looked_at)
    files = [file for pipeline in looked_at for file in commits_of(lake.settings(), pipeline, checkpoint_id=None)]
    logged = Counter(file.entry.s3_key for file in files if file.state == "committed")
    names = (*(stream.table for pipeline in looked_at for stream in pipeline.streams), QUARANTINE)
    tables = [load_table(lake.catalog, name) for name in names]
    files_there = Counter(path for table in tables if table for path in files_of(table))
    assert logged == files_there, f"only the log names {logged - files_there}, only the tables {files_there - logged}"


def check_landed_once(lake: Lake, *pipelines: Pipeline) -> None:
    """Compare the lake with the topics of these pipelines."""
    for verified in (verified for pipeline in pipelines for verified in lake.verify(pipeline)):
        assert (verified.missing, verified.doubled, verified.unlogged, verified.waiting) == (0, 0, 0, 0), verified
