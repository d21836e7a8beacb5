"""Builds beside landing: they retry during an outage, and an unexpected error ends the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from pyiceberg.catalog.noop import NoopCatalog

from headrace.app import live, live_builds, mirroring
from headrace.app.live import LivePipeline
from headrace.app.live_builds import LiveBuilds
from headrace.backoff import Backoff
from headrace.build.lake import Lake
from headrace.build.plan import TablePlan
from headrace.build.scheduling import table_state
from headrace.errors import BuildError, LandingError, UnavailableError
from headrace.sessions import building, retry_policy
from headrace.sessions.building import Outcome
from headrace.sessions.landing import Session
from headrace.sessions.retry_policy import RetryPolicy, for_command
from headrace.settings import load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import TableName
from tests.support.waiting import wait_until

AWAY = UnavailableError("the catalog does not answer: refused")
REFUSED = requests.exceptions.ConnectionError("refused")
FILES = {
    "pipeline.yml": """\
name: pond
about: Two tables, of which one reads the other.
namespace: pond
streams:
  events: {topic: pond-events, format: json, schema: schemas/event.sql, table: pond.events}
""",
    "schemas/event.sql": "k STRING, n BIGINT",
    "layers/latest.sql": "/*\nkeys: [k]\nsequence_by: n\n*/\nSELECT k, n FROM pond.events",
    "layers/counted.sql": "/*\nkeys: [n]\n*/\nSELECT n, count(*) AS ks FROM pond.latest GROUP BY n",
}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    for name, text in FILES.items():
        path = tmp_path / "pipelines" / "pond" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(retry_policy, "OUTAGES", Backoff(0.01, longest=10.0))
    return load_pipeline("pond", environ={}, folder=tmp_path)


class Live:
    """A live pipeline whose builds return `build(name, attempt)`."""

    def __init__(self, pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings: Any = load_settings(flags={}, environ={}, folder=folder)
        lake: Any = SimpleNamespace(settings=settings, pipeline=pipeline, catalog=NoopCatalog("test"))
        nothing: Any = None
        self.lake = lake
        session = Session(settings, pipeline, nothing, nothing, nothing)
        self.pipelines = [LivePipeline(session, lake)]
        self.tried: list[str] = []
        self.stale = {"latest", "counted"}
        self.said: list[str] = []
        self.outcomes: list[Outcome] = []
        self.end = Event()
        self.build: Callable[[str, int], Outcome] = self.built
        monkeypatch.setattr(live_builds, "build_one", self._build_one)
        monkeypatch.setattr(live_builds, "plan_table", self._plan)
        monkeypatch.setattr(mirroring, "mirror", lambda lake, outcomes: None)
        monkeypatch.setattr(table_state, "_COALESCE_SECONDS", 0.0)
        monkeypatch.setattr(table_state, "TABLES", Backoff(0.02, longest=300.0))

    def table(self, name: str) -> LayerTable:
        tables: tuple[LayerTable, ...] = self.lake.pipeline.tables
        return next(table for table in tables if table.table.name == name)

    def built(self, name: str, number: int = 1, *, changed: bool = True) -> Outcome:
        plan: Any = SimpleNamespace(action="increment", rest_since=None)
        entry: Any = SimpleNamespace(build_id=number, changed_in=number if changed else 0)
        done: Any = SimpleNamespace(plan=plan, entry=entry, seconds=0.1)
        return Outcome(self.table(name), plan, done)

    def builds(self, **named: Any) -> AbstractContextManager[LiveBuilds]:
        return live.builds(self.pipelines, built=self.outcomes.append, report=self.said.append, end=self.end, **named)

    def land(self, builds: LiveBuilds) -> None:
        builds.note_landed("pond", [TableName("pond", "events")])

    def _build_one(self, lake: Lake, table: LayerTable, *, full_refresh: bool, begin: Callable[[TablePlan], None]) -> Outcome:
        name = table.table.name
        self.tried.append(name)
        plan: Any = SimpleNamespace(action="increment", table=table)
        begin(plan)
        return self.build(name, self.tried.count(name))

    def _plan(self, catalog: object, pipeline: Pipeline, table: LayerTable) -> TablePlan:
        name = table.table.name
        done = name in self.tried or name not in self.stale
        plan: Any = SimpleNamespace(action="nothing" if done else "refresh", entry=SimpleNamespace(build_id=int(done)))
        return plan  # type: ignore[no-any-return]


@pytest.fixture
def running(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    return Live(pipeline, tmp_path, monkeypatch)


def test_unexpected_error_ends_the_run(running: Live) -> None:
    def build(name: str, number: int) -> Outcome:
        raise TypeError("a bug")

    running.build = build
    with pytest.raises(TypeError, match="a bug"), running.builds():
        assert running.end.wait(60), "landing ends"
    assert (running.tried, running.said) == (["latest"], [])
    assert (running.lake.settings.logs / "build.log").read_text(encoding="utf-8").endswith("TypeError: a bug\n")


def test_error_of_builds_is_logged_where_the_run_ends_with_another(running: Live) -> None:
    def build(name: str, number: int) -> Outcome:
        raise TypeError("a bug")

    def run() -> None:
        with running.builds():
            assert running.end.wait(60)
            raise LandingError("landing ended too")

    running.build = build
    with pytest.raises(LandingError, match="landing ended too"):
        run()
    assert (running.lake.settings.logs / "build.log").read_text(encoding="utf-8").endswith("TypeError: a bug\n")


def test_build_waits_for_unreadable_columns(running: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(name: str, number: int) -> Outcome:
        is_grown = name == "latest" and number < 3
        return Outcome(running.table(name), grown=True) if is_grown else running.built(name)

    def follow_inputs(lake: object) -> object:
        raise REFUSED

    running.build = build
    monkeypatch.setattr(live_builds, "follow_inputs", follow_inputs)
    with running.builds():
        wait_until(lambda: running.tried.count("latest") >= 3, what="a third try")
        assert not running.end.is_set()
        wait_until(lambda: len(running.said) > 1, what="it goes on")
    assert [sentence.split(": ")[:2] for sentence in running.said[:1]] == [["builds", "the catalog does not answer"]]
    assert [sentence.split(" after ")[0] for sentence in running.said[1:]] == ["builds: recovered"]


def test_failed_build_is_reported_and_retried(running: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(name: str, number: int) -> Outcome:
        return Outcome(running.table(name), grown=True) if running.tried == ["latest"] else running.built(name)

    def follow_inputs(lake: object) -> object:
        raise BuildError("a type would have to be narrowed")

    running.build = build
    monkeypatch.setattr(live_builds, "follow_inputs", follow_inputs)
    with running.builds():
        wait_until(lambda: running.tried.count("latest") >= 2, what="a second try")
    assert running.said == ["the tables could not be built: a type would have to be narrowed"]


def test_builds_run_at_the_start_and_after_landing(running: Live) -> None:
    with running.builds() as builds:
        wait_until(lambda: running.tried == ["latest", "counted"], what="the tables that were never built")
        wait_until(lambda: len(running.outcomes) == 2, what="both outcomes")
        running.land(builds)
        wait_until(lambda: running.tried == ["latest", "counted"] * 2, what="both again, in order")
    assert [outcome.newest_change is not None for outcome in running.outcomes] == [False, False, True, True]


def test_downstream_is_not_built_without_changed_rows(running: Live) -> None:
    running.build = lambda name, number: running.built(name, number, changed=number == 1)
    with running.builds() as builds:
        wait_until(lambda: len(running.outcomes) == 2, what="the first builds")
        running.land(builds)
        wait_until(lambda: len(running.outcomes) == 3, what="the table that follows")
    assert running.tried == ["latest", "counted", "latest"]


def test_outage_pauses_all_tables_without_errors(running: Live) -> None:
    running.build = lambda name, number: Outcome(running.table(name), error=AWAY) if number < 4 else running.built(name)
    with running.builds():
        wait_until(lambda: len(running.outcomes) == 2, what="both tables")
    assert running.tried == ["latest"] * 4 + ["counted"] * 4
    assert all(outcome.error is None for outcome in running.outcomes)
    assert [sentence.split(";")[0].split(" after ")[0] for sentence in running.said] == [
        f"builds: {AWAY.what}",
        "builds: recovered",
    ] * 2


def test_failing_table_names_its_skipped_downstream(running: Live) -> None:
    broken = BuildError("no")
    running.build = lambda name, number: Outcome(running.table(name), error=broken) if number < 2 else running.built(name)
    running.stale = {"latest", "counted"}
    with running.builds():
        wait_until(lambda: running.tried.count("counted") == 2, what="all to be built in the end")
    outcomes = [(outcome.table.table.name, outcome.error, outcome.because_of) for outcome in running.outcomes[:2]]
    assert outcomes == [("latest", broken, None), ("counted", None, TableName("pond", "latest"))]


def test_builds_wait_for_tables_that_a_replay_has_claimed(running: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = {TableName("pond", "latest")}
    monkeypatch.setattr(live_builds, "read_claims", lambda settings, pipeline: frozenset(claimed))
    monkeypatch.setattr(live_builds, "_CLAIMS_SECONDS", 0.02)
    running.stale = set()
    with running.builds() as builds:
        running.land(builds)
        time.sleep(0.1)
        assert running.tried == []
        claimed.clear()
        wait_until(lambda: running.tried == ["latest", "counted"], what="the tables to be built")


def test_builds_notice_changes_of_other_processes(running: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_builds, "_LOOK_SECONDS", 0.02)
    running.stale = set()
    with running.builds():
        time.sleep(0.1)
        assert running.tried == []
        running.stale = {"counted"}
        wait_until(lambda: running.tried == ["counted"], what="the table that is stale now")


def test_slow_table_does_not_delay_an_independent_one(
    running: Live, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    other = replace(running.table("latest"), table=TableName("pond", "other"))
    running.lake.pipeline = replace(pipeline, tables=(*pipeline.tables, other))
    running.stale = set()
    slow_may_end = Event()

    def build(name: str, number: int) -> Outcome:
        assert name != "latest" or slow_may_end.wait(60)
        return running.built(name, number)

    running.build = build
    with running.builds() as builds:
        for count in range(1, 4):
            running.land(builds)
            wait_until(lambda: running.tried.count("other") == count, what="the other table")  # noqa: B023
            wait_until(lambda: len(running.outcomes) == count, what="it is done")  # noqa: B023
        assert running.tried.count("latest") == 1
        slow_may_end.set()
        wait_until(lambda: running.tried.count("latest") == 2, what="the changes that came meanwhile, in one build")
        wait_until(lambda: running.tried.count("counted") >= 1, what="what reads it")


class Tables:
    """Returns a planned outcome for each attempt at a table, and records the attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, **errors: list[Exception | None]) -> None:
        self.tried: list[tuple[str, bool]] = []
        self.mirrored = 0
        self._built: set[str] = set()
        self._errors = {name: iter(error) for name, error in errors.items()}
        self.lake: Any = SimpleNamespace(pipeline=pipeline)
        monkeypatch.setattr(building, "build_one", self._build_one)
        monkeypatch.setattr(building, "mirror", self._mirror)

    def _build_one(self, lake: Lake, table: LayerTable, *, full_refresh: bool) -> Outcome:
        name = table.table.name
        self.tried.append((name, full_refresh))
        error: Any = next(self._errors.get(name, iter([])), None)
        built: Any = None if error or name in self._built else SimpleNamespace(plan=SimpleNamespace(rest_since=None))
        if built:
            self._built.add(name)
        return Outcome(table, error=error, built=built)

    def _mirror(self, lake: Lake, outcomes: object) -> None:
        self.mirrored += 1
        error = next(self._errors.get("metadata", iter([])), None)
        if error is not None:
            raise error


def test_build_retries_without_building_twice(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(monkeypatch, pipeline, counted=[AWAY, AWAY, None], metadata=[REFUSED, None])
    messages: list[str] = []
    reported: list[Outcome] = []
    outcomes = building.build(
        tables.lake,
        refresh=[TableName("pond", "latest")],
        done=reported.append,
        retry_policy=RetryPolicy("build", report=messages.append),
    )
    assert all(outcome.built and not outcome.error for outcome in outcomes)
    assert [name for name in tables.tried if name[1]] == [("latest", True)], "it is rebuilt once"
    assert all(outcome.error is None for outcome in reported), "no table is blamed for it"
    assert tables.mirrored == 2
    assert [sentence.split(";")[0].split(" after ")[0] for sentence in messages] == [
        f"build: {AWAY.what}",
        "build: recovered",
        "build: the catalog does not answer: refused",
        "build: recovered",
    ]


def test_build_does_not_start_tables_downstream_of_a_retry(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(monkeypatch, pipeline, latest=[AWAY, None])
    outcomes: list[Outcome] = []
    building.build(tables.lake, done=outcomes.append, retry_policy=RetryPolicy("build", report=lambda sentence: None))
    assert [name for name, _ in tables.tried] == ["latest", "latest", "counted"]
    assert [outcome.table.table.name for outcome in outcomes] == ["latest", "counted"]


def test_build_gives_up_after_its_retries(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "_FOR_A_COMMAND_SECONDS", 0.0)
    tables = Tables(monkeypatch, pipeline, latest=[AWAY] * 100)
    with pytest.raises(UnavailableError, match="does not answer"):
        building.build(tables.lake, retry_policy=for_command("build", report=lambda sentence: None))


def test_build_stops_while_it_waits(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    tables = Tables(monkeypatch, pipeline, latest=[AWAY] * 100)
    building.build(tables.lake, stop=stop, retry_policy=RetryPolicy("build", report=lambda sentence: stop.set()))
    assert ([name for name, _ in tables.tried], tables.mirrored) == (["latest"], 0)


def test_build_without_a_retry_policy_fails_at_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(monkeypatch, pipeline, latest=[AWAY])
    latest, counted = building.build(tables.lake)
    assert (latest.error, counted.because_of) == (AWAY, TableName("pond", "latest"))


def test_table_is_published_while_others_are_built(running: Live) -> None:
    published = Event()

    class Queue:
        def after(self, built: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
            return lambda outcome: published.set() if outcome.table.table.name == "latest" else None

        def add(self) -> None: ...

    def build(name: str, number: int) -> Outcome:
        assert name == "latest" or published.wait(60), "the builds go on, and the first table is published"
        return running.built(name)

    running.build = build
    with running.builds(queues=[Queue()]):
        assert published.wait(60)
        wait_until(lambda: "counted" in running.tried, what="the second table")


def test_metadata_is_mirrored_during_builds_and_at_the_end(running: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored: list[list[str]] = []
    monkeypatch.setattr(
        mirroring, "mirror", lambda lake, outcomes: mirrored.append([outcome.table.table.name for outcome in outcomes])
    )
    with running.builds():
        wait_until(lambda: len(running.outcomes) == 2, what="both tables")
        assert mirrored == [], "nothing waits for it"
    assert mirrored == [["latest", "counted"]]
