"""The application, or a worker of it, dies at any point of a batch: the next run goes on, exactly once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import faults
from headrace.operations.verify.inspection import commits_of
from tests.support.lake import Lake, check_exactly_once, send_lineage
from tests.support.topics import Sent, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

PARTITIONS = 10
FIRST, SECOND = 300, 12_000


Landed = tuple[Lake, list[Sent], dict[tuple[int, int], dict[str, object]]]


@pytest.fixture
def landed(lake: Lake, spark: SparkSession) -> Landed:
    """A lake with one checkpoint, and messages for a second one waiting."""
    make_topic(lake.servers, lake.topic, partitions=PARTITIONS)
    sent, good = send_lineage(lake, FIRST, seed=1, partitions=PARTITIONS)
    lake.land(spark)
    more, more_good = send_lineage(lake, SECOND, seed=2, partitions=PARTITIONS)
    return lake, sent + more, good | more_good


def checkpoints(lake: Lake) -> set[int]:
    return {row["checkpoint_id"] for row in lake.rows("lineage.events", "checkpoint_id")}


@pytest.mark.parametrize("place", ["plan", "read", "decode", "write", "log", "committing", "commit"])
def test_application_is_killed(landed: Landed, spark: SparkSession, place: str) -> None:
    lake, sent, good = landed
    died = lake.start("land", "lineage", "--once", HEADRACE_FAULT=f"kill-application@{place}")
    assert died.wait() == -signal.SIGKILL, died.said()
    assert f"HEADRACE_FAULT: killing the application at step {place}" in died.said()
    committed = place in ("committing", "commit")
    assert checkpoints(lake) == ({1, 2} if committed else {1})
    orphans = names_logged(lake, "orphan")
    assert bool(orphans) == (place in ("log", "committing")), "what was logged and not committed"
    if place == "log":
        lake.run("land", "lineage", "--once")
    else:
        lake.land(spark)  # a new application in all but the process, which takes seconds to start
    check_exactly_once(lake, sent, good=good)
    assert checkpoints(lake) == {1, 2}
    if place == "log":
        assert names_logged(lake, "orphan") >= orphans, "the log still names what the dead application wrote"
    else:
        assert not names_logged(lake, "orphan"), "its successor has committed the quarantine"


def test_worker_is_killed_while_it_writes(landed: Landed, spark: SparkSession) -> None:
    lake, sent, good = landed
    with faulty_workers(spark, "kill-worker@writing") as log:
        lake.land(spark)
    assert "Python worker exited unexpectedly" in log.new_text()
    check_exactly_once(lake, sent, good=good)


@pytest.mark.parametrize("place", ["write", "log"])
def test_task_that_fails_is_tried_again(landed: Landed, spark: SparkSession, place: str) -> None:
    lake, sent, good = landed
    with faulty_workers(spark, f"fail-task@{place}") as log:
        lake.land(spark)
    assert f"a drill asked this task to fail at {place}" in log.new_text()
    check_exactly_once(lake, sent, good=good)
    assert not names_logged(lake, "orphan", "gone"), "the second attempt replaces the log of the first"


@dataclass(frozen=True)
class SparkLog:
    """The log of the Spark that all tests share, from a position on."""

    path: Path
    start: int

    def new_text(self) -> str:
        return self.path.read_bytes()[self.start :].decode(errors="replace")


@contextmanager
def faulty_workers(spark: SparkSession, fault: str) -> Iterator[SparkLog]:
    """Yield a fault to the Python workers of the jobs of this block, in the Spark that all tests share.

    Workers of another environment are processes of their own, and a fault of a task needs no new application.
    """
    environment = spark.sparkContext.environment
    path = Path(str(spark.conf.get("spark.local.dir"))).parent / "logs" / "spark.log"
    environment[faults.VARIABLE] = fault
    try:
        yield SparkLog(path, path.stat().st_size)
    finally:
        del environment[faults.VARIABLE]


def names_logged(lake: Lake, *states: str) -> set[str]:
    files = commits_of(lake.settings(), lake.pipeline(), checkpoint_id=None)
    return {file.entry.s3_key for file in files if file.state in states}
