"""Two applications of one pipeline, and what one leaves behind when it dies."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from headrace.servers.kafka import running_kafka
from tests.support.application import find_processes
from tests.support.lake import Lake, check_exactly_once, send_lineage
from tests.support.topics import lineage_values, make_topic, produce
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]


def test_second_run_is_refused_and_the_first_ends_in_order(lake: Lake) -> None:
    make_topic(lake.servers, lake.topic, partitions=10)
    sent, good = send_lineage(lake, 500, seed=1, partitions=10, bad_every=100)
    first = lake.start("run", "lineage")
    first.wait_to_say("Spark is starting")
    second = lake.start("run", "lineage")
    assert second.wait() == 3
    assert f"another application already runs this pipeline (process {first.pid} on " in second.said()
    assert "--take-over" in second.said()
    assert lake.try_command("clean", "--yes")[0] == 3
    assert lake.home.exists()
    first.wait_to_say("checkpoint 1")
    more, more_good = send_lineage(lake, 500, seed=2, partitions=10, bad_every=100)
    first.wait_to_say("checkpoint 2")
    wait_until(lambda: len(lake.rows("lineage.events", "uuid")) == len(good | more_good), what="all rows")
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, first.said()
    check_exactly_once(lake, sent + more, good=good | more_good)


def test_application_that_was_taken_over_from_can_not_commit(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic)
    sent, good = send_lineage(lake, 300, seed=1, bad_every=100)
    lake.land(spark)
    more, more_good = send_lineage(lake, 300, seed=2, bad_every=100)
    old = lake.start("land", "lineage", "--once", HEADRACE_FAULT="stop-application@log")
    old.wait_to_stop()
    assert lake.try_command("land", "lineage", "--once")[0] == 3
    lake.command("land", "lineage", "--once", "--take-over", spark=spark)
    check_exactly_once(lake, sent + more, good=good | more_good)
    old.signal(signal.SIGCONT)
    assert old.wait() == 3
    assert "another application has landed checkpoint 2" in old.said()
    assert "Nothing was lost or written twice" in old.said()
    check_exactly_once(lake, sent + more, good=good | more_good)


def test_all_but_kafka_catalog_and_warehouse_is_deleted(lake: Lake, spark: SparkSession) -> None:
    make_topic(lake.servers, lake.topic)
    sent, good = send_lineage(lake, 300, seed=1, bad_every=100)
    lake.run("land", "lineage", "--once")
    removed = [path for path in lake.home.iterdir() if path.name != "warehouse" and not path.name.startswith("catalog.db")]
    assert removed
    for path in removed:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    more, more_good = send_lineage(lake, 300, seed=2, bad_every=100)
    lake.land(spark)  # a new application in all but the process, which takes seconds to start
    check_exactly_once(lake, sent + more, good=good | more_good)
    assert {row["checkpoint_id"] for row in lake.rows("lineage.events", "checkpoint_id")} == {1, 2}


def test_nothing_stays_behind_when_an_application_is_killed(lake: Lake) -> None:
    """It has a broker of its own, Spark's JVM, and Python workers; none of them outlives it by more than some seconds."""
    application = lake.start("run", "lineage", KAFKA_BOOTSTRAP_SERVERS="")
    application.wait_to_say("Spark is ready", seconds=90)
    service = running_kafka(lake.settings(KAFKA_BOOTSTRAP_SERVERS=""))
    assert service
    produce(service.bootstrap_servers, lake.topic, lineage_values(20_000, seed=1), partitions=10)
    application.wait_to_say("checkpoint 1")
    commands = [" ".join(process.cmdline()) for process in find_processes(lake.home)]
    for part in ("kafka.Kafka", "SparkSubmit", "worker_daemon", "watchdog"):
        assert any(part in command for command in commands), (part, commands)
    os.kill(application.pid, signal.SIGKILL)
    application.wait()
    wait_until(lambda: not find_processes(lake.home), what=f"the end of all of {commands}", seconds=60)
    assert not psutil.pid_exists(service.pid)
