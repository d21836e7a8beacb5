"""Builds beside landing: they wait for what is away, and what nobody expected ends the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from headrace.build.lake import Lake
from headrace.errors import BuildError, UnavailableError
from headrace.runs import building, live, patience
from headrace.runs.building import Outcome
from headrace.runs.landing import Session
from headrace.runs.patience import Patience, for_a_command
from headrace.settings import load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.layers import LayerTable
from headrace.spec.pipeline import TableName
from tests.waiting import wait_until

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
    monkeypatch.setattr(patience, "_FIRST_PAUSE_SECONDS", 0.01)
    return load_pipeline("pond", environ={}, folder=tmp_path)


@pytest.fixture
def session(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    settings: Any = load_settings(flags={}, environ={}, folder=tmp_path)
    lake = SimpleNamespace(settings=settings, pipeline=pipeline)
    monkeypatch.setattr(live, "open_lake", lambda *arguments: lake)
    monkeypatch.setattr(live, "mirror", lambda lake: None)
    nothing: Any = None
    return Session(settings, pipeline, nothing, nothing, SimpleNamespace())  # type: ignore[arg-type]


def play(monkeypatch: pytest.MonkeyPatch, build: Callable[[int], tuple[Outcome, ...]]) -> list[int]:
    """Has rounds of builds be what `build` makes of their number; gives back the list that they are counted in."""
    rounds: list[int] = []

    def played(*arguments: object, **named: object) -> tuple[Outcome, ...]:
        rounds.append(1)
        return build(len(rounds))

    monkeypatch.setattr(live, "build", played)
    return rounds


def test_an_error_that_nobody_expected_ends_the_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(number: int) -> tuple[Outcome, ...]:
        raise TypeError("a bug")

    rounds = play(monkeypatch, build)
    end, said = Event(), list[str]()
    with pytest.raises(TypeError, match="a bug"), live.builds(session, built=print, report=said.append, end=end):
        assert end.wait(60), "landing is told to end"
    assert (len(rounds), said) == (1, [])


def test_columns_that_can_t_be_read_yet_are_waited_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    grown = (Outcome(session.pipeline.tables[0], grown=True),)
    rounds = play(monkeypatch, lambda number: grown if number < 3 else ())

    def follow_inputs(lake: object) -> object:
        raise REFUSED

    monkeypatch.setattr(live, "follow_inputs", follow_inputs)
    end, said = Event(), list[str]()
    with live.builds(session, built=print, report=said.append, end=end):
        wait_until(lambda: len(rounds) >= 3, what="a third round")
        assert not end.is_set()
    assert [sentence.split(": ")[:2] for sentence in said] == [["builds", "the catalog does not answer"]]


def test_a_mistake_is_told_and_tried_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(number: int) -> tuple[Outcome, ...]:
        if number == 1:
            raise BuildError("a type would have to be narrowed")
        return ()

    monkeypatch.setattr(live, "_FIRST_WAIT_SECONDS", 0.01)
    rounds = play(monkeypatch, build)
    said: list[str] = []
    with live.builds(session, built=print, report=said.append, end=Event()):
        wait_until(lambda: len(rounds) >= 2, what="a second round")
    assert said == ["the tables could not be built: a type would have to be narrowed"]


class Tables:
    """Plays what becomes of each table at each try, and keeps who was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, **errors: list[Exception | None]) -> None:
        self.tried: list[tuple[str, bool]] = []
        self.mirrored = 0
        self._built: set[str] = set()
        self._errors = {name: iter(each) for name, each in errors.items()}
        self.lake: Any = SimpleNamespace(pipeline=pipeline)
        monkeypatch.setattr(building, "build_one", self._build_one)
        monkeypatch.setattr(building, "mirror", self._mirror)

    def _build_one(self, lake: Lake, table: LayerTable, *, full_refresh: bool) -> Outcome:
        name = table.table.name
        self.tried.append((name, full_refresh))
        error: Any = next(self._errors.get(name, iter([])), None)
        built: Any = None if error or name in self._built else SimpleNamespace()
        if built:
            self._built.add(name)
        return Outcome(table, error=error, built=built)

    def _mirror(self, lake: Lake, outcomes: object) -> None:
        self.mirrored += 1
        error = next(self._errors.get("metadata", iter([])), None)
        if error is not None:
            raise error


def test_a_build_waits_and_builds_nothing_twice(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(monkeypatch, pipeline, counted=[AWAY, AWAY, None], metadata=[REFUSED, None])
    said: list[str] = []
    told: list[Outcome] = []
    outcomes = building.build(
        tables.lake, refresh=[TableName("pond", "latest")], done=told.append, patience=Patience("build", report=said.append)
    )
    assert all(each.built and not each.error for each in outcomes)
    assert [each for each in tables.tried if each[1]] == [("latest", True)], "it is written anew once"
    assert all(each.error is None for each in told), "no table is blamed for it"
    assert tables.mirrored == 2
    assert [sentence.split(";")[0].split(" after ")[0] for sentence in said] == [
        f"build: {AWAY.what}",
        "build: going on",
        "build: the catalog does not answer: refused",
        "build: going on",
    ]


def test_tables_after_one_that_waits_are_not_begun(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(monkeypatch, pipeline, latest=[AWAY, None])
    told: list[Outcome] = []
    building.build(tables.lake, done=told.append, patience=Patience("build", report=lambda sentence: None))
    assert [name for name, _ in tables.tried] == ["latest", "latest", "counted"]
    assert [each.table.table.name for each in told] == ["latest", "counted"]


def test_a_build_gives_up_in_the_end(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_FOR_A_COMMAND_SECONDS", 0.0)
    tables = Tables(monkeypatch, pipeline, latest=[AWAY] * 100)
    with pytest.raises(UnavailableError, match="does not answer"):
        building.build(tables.lake, patience=for_a_command("build", report=lambda sentence: None))


def test_a_build_that_is_stopped_while_it_waits(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    tables = Tables(monkeypatch, pipeline, latest=[AWAY] * 100)
    building.build(tables.lake, stop=stop, patience=Patience("build", report=lambda sentence: stop.set()))
    assert ([name for name, _ in tables.tried], tables.mirrored) == (["latest"], 0)


def test_without_patience_the_table_has_failed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Tables(monkeypatch, pipeline, latest=[AWAY])
    latest, counted = building.build(tables.lake)
    assert (latest.error, counted.because_of) == (AWAY, TableName("pond", "latest"))


def test_a_table_is_published_before_its_round_ends(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    first = session.pipeline.tables[0]
    published = Event()

    class Queue:
        def after(self, built: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
            return lambda outcome: published.set() if outcome.table is first else None

        def add(self) -> None: ...

    def build(*arguments: object, done: Callable[[Outcome], None], **named: object) -> tuple[Outcome, ...]:
        done(Outcome(first))
        assert published.wait(60), "the round goes on, and the first table is published"
        return ()

    monkeypatch.setattr(live, "build", build)
    queue: Any = Queue()
    with live.builds(session, built=print, report=print, end=Event(), queue=queue):
        assert published.wait(60)
