"""Live builds of real tables: slow and failing tables delay no other, and two pipelines run in one application."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from headrace.app import live
from headrace.app.board import lines
from headrace.app.live import LivePipeline, live_pipeline, run_live
from headrace.app.live_builds import LiveBuilds
from headrace.backoff import Backoff
from headrace.build.scheduling import table_state
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import read_build
from headrace.kafka.client import KafkaServers
from headrace.quality.results import read_results
from headrace.sessions.building import Outcome
from headrace.sessions.landing import Session
from headrace.spec.model.pipeline import TableName
from tests.build.layer_lake import Event, LayerLake
from tests.support.folders import write_files
from tests.support.lake import Lake
from tests.support.topics import produce
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LATEST = "/*\nkeys: [k]\nsequence_by: n\n*/\nSELECT k, n, g, amount FROM pond.events"
GROUPS = "/*\nkeys: [g]\n*/\nSELECT g, count(*) AS keys FROM pond.latest GROUP BY g"
FAILING = """/*
keys: [id]
sequence_by: n
expect:
  amount is positive: {that: amount > 0, on_failure: fail}
*/
SELECT id, n, amount FROM pond.events"""
BOTH = """/*
keys: [key]
sequence_by: n
*/
SELECT concat('f', id) AS key, n, amount FROM pond.failing
UNION ALL
SELECT concat('l', k) AS key, n, amount FROM pond.latest"""
SLOW = '''import time
from pathlib import Path

from headrace import table
from pyspark.sql import DataFrame


@table(keys=["k"], sequence_by="n")
def slow(events: DataFrame) -> DataFrame:
    """As slow as the test has it."""
    while Path("{hold}").exists():
        time.sleep(0.02)
    return events.select("k", "n")
'''


def event(number: int, *, cents: int = 100) -> Event:
    return Event(f"e{number}", f"k{number % 3}", f"g{number % 2}", number, cents, "u", number)


class LivePond:
    """A test lake whose tables are built live."""

    def __init__(self, layer_lake: LayerLake, spark: SparkSession) -> None:
        nothing: Any = None
        self.layer_lake = layer_lake
        session = Session(layer_lake.settings, layer_lake.pipeline, nothing, nothing, spark)
        self._pipelines = [LivePipeline(session, layer_lake.lake)]
        self.outcomes: list[Outcome] = []
        self.said: list[str] = []

    def builds(self) -> AbstractContextManager[LiveBuilds]:
        return live.builds(self._pipelines, built=self.outcomes.append, report=self.said.append, end=Flag())

    def land(self, builds: LiveBuilds, *events: Event) -> None:
        self.layer_lake.land(events)
        builds.note_landed("pond", [TableName("pond", "events")])

    def count_builds(self, name: str) -> int:
        return read_build(load_table(self.layer_lake.catalog, TableName("pond", name))).build_id

    def wait_for_build(self, name: str, number: int) -> None:
        wait_until(lambda: self.count_builds(name) >= number, what=f"build {number} of {name}", seconds=180)


def test_failing_table_delays_no_other(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "TABLES", Backoff(2.0, longest=300.0))
    tables = {"a/latest.sql": LATEST, "a/failing.sql": FAILING, "b/groups.sql": GROUPS, "b/both.sql": BOTH}
    whole = LayerLake(tmp_path / "whole", spark, {"a/latest.sql": LATEST, "b/groups.sql": GROUPS})
    whole.land([event(1), event(2), event(3), event(4, cents=-1), event(5)])
    whole.build()
    running = LivePond(LayerLake(tmp_path / "live", spark, tables), spark)
    running.layer_lake.land([event(1), event(2)])
    with running.builds() as builds:
        for name in ("latest", "failing", "groups", "both"):
            running.wait_for_build(name, 1)
        running.land(builds, event(3), event(4, cents=-1))
        wait_until(lambda: any(outcome.error for outcome in running.outcomes), what="a failure", seconds=180)
        running.land(builds, event(5))
        for name in ("latest", "groups"):
            wait_until(lambda: running.layer_lake.rows(name) == whole.rows(name), what=name, seconds=180)  # noqa: B023
        wait_until(lambda: any("'n', 5" in row for row in running.layer_lake.rows("both")), what="its reader", seconds=180)
        assert running.count_builds("failing") == 1, "nothing of it is published"
        wait_until(lambda: sum(outcome.error is not None for outcome in running.outcomes) > 1, what="another try", seconds=180)
    results = [row for row in read_results(running.layer_lake.catalog, "pond") if row["table_name"] == "pond.failing"]
    assert [row["published"] for row in results].count(False) == 1, "one build was refused, however often it was tried"
    assert [row["build_id"] for row in results if row["published"]] == [1]


def test_slow_table_delays_no_other(tmp_path: Path, spark: SparkSession) -> None:
    hold = tmp_path / "hold"
    tables = {"a/latest.sql": LATEST, "a/slow.py": SLOW.replace("{hold}", str(hold)), "b/groups.sql": GROUPS}
    running = LivePond(LayerLake(tmp_path, spark, tables), spark)
    running.layer_lake.land([event(1)])
    with running.builds() as builds:
        for name in ("latest", "slow", "groups"):
            running.wait_for_build(name, 1)
        hold.touch()
        try:
            for number in range(2, 5):
                count = running.count_builds("groups")
                running.land(builds, event(number))
                running.wait_for_build("groups", count + 1)
            assert running.count_builds("slow") == 1
        finally:
            hold.unlink()
        wait_until(lambda: len(running.layer_lake.rows("slow")) == 3, what="the slow table", seconds=180)
        assert running.count_builds("slow") <= 3, "what came while it was built is one build"
    assert not [outcome.error for outcome in running.outcomes if outcome.error]


PIPELINE = """\
name: {name}
about: A stream, and a table of it.
streams:
  events: {{topic: {topic}, format: json, schema: schemas/event.sql, table: raw_{name}.events}}
"""


@pytest.mark.services
def test_two_pipelines_run_in_one_application(lake: Lake, spark: SparkSession) -> None:
    console, stop = Console(file=io.StringIO(), width=240), Flag()
    board = lines(lambda sentence: console.print(sentence, highlight=False, markup=False, soft_wrap=True))
    with ExitStack() as stack:
        running: list[LivePipeline] = []
        for name in ("one", "two"):
            files = {
                "pipeline.yml": PIPELINE.format(name=name, topic=f"{lake.topic}-{name}"),
                "schemas/event.sql": "k STRING, n BIGINT",
                f"layers_{name}/latest.sql": f"/*\nkeys: [k]\nsequence_by: n\n*/\nSELECT k, n FROM raw_{name}.events",
            }
            write_files(lake.folder / "pipelines" / name, files)
            pipeline = lake.pipeline(name)
            session = Session(lake.settings(), pipeline, KafkaServers(lake.servers), lake.lander(pipeline), spark)
            running.append(stack.enter_context(live_pipeline(session, report=board.report)))
        errors: list[BaseException] = []
        thread = Thread(target=_run, args=(running, stop, board, errors))
        thread.start()
        try:
            for number in range(2):
                for name in ("one", "two"):
                    produce(lake.servers, f"{lake.topic}-{name}", [json.dumps({"k": name, "n": number}).encode()])
                for name in ("one", "two"):
                    wait_until(_has(lake, f"layers_{name}.latest", {"k": name, "n": number}), what=name, seconds=180)
        finally:
            stop.set()
            thread.join()
    assert not errors


def _run(running: list[LivePipeline], stop: Flag, board: Any, errors: list[BaseException]) -> None:
    try:
        run_live(running, stop=stop, board=board)
    except BaseException as error:
        errors.append(error)


def _has(lake: Lake, table: str, wanted: dict[str, object]) -> Callable[[], bool]:
    namespace, name = table.split(".")

    def look() -> bool:
        table = load_table(lake.catalog, TableName(namespace, name))
        return table is not None and wanted in table.scan(selected_fields=("k", "n")).to_arrow().to_pylist()

    return look
