"""Run several pipelines in one application: a pipeline that fails to start leaves nothing running and the others start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.app import application
from headrace.app.application import live_pipelines
from headrace.errors import LockedError, SpecError
from headrace.settings import Settings, load_settings
from headrace.spec.model.pipeline import Pipeline, Stream, TableName


@dataclass
class World:
    """The recorded calls of a start, in order; the steps in `broken` fail."""

    broken: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise LockedError(f"{name} can't be had")

    @contextmanager
    def around(self, name: str) -> Iterator[Any]:
        self.step(name)
        try:
            yield SimpleNamespace()
        finally:
            self.calls.append(f"end of {name}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(
        application, "landing_services", lambda settings, pipeline, **named: world.around(f"services {pipeline.name}")
    )
    monkeypatch.setattr(application, "spark_session", lambda settings, **named: world.around("spark"))
    monkeypatch.setattr(
        application, "open_session", lambda settings, pipeline, *rest, **named: SimpleNamespace(pipeline=pipeline)
    )
    monkeypatch.setattr(application, "receiving", lambda settings, pipeline, **named: world.around(f"http {pipeline.name}"))
    monkeypatch.setattr(application, "publishing", lambda settings, pipeline, **named: world.around(f"sql {pipeline.name}"))
    monkeypatch.setattr(application, "live_pipeline", lambda session, **named: world.around(f"lake {session.pipeline.name}"))
    return world


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(flags={}, environ={}, folder=tmp_path)


def pipeline(name: str, *, table: str = "events") -> Pipeline:
    stream = Stream("events", name, 1, "json", (), TableName(name, table))
    return Pipeline(name, "", Path(), (stream,))


def test_live_pipelines_share_one_spark_and_stop_at_the_end(world: World, settings: Settings) -> None:
    with live_pipelines(settings, [pipeline("one"), pipeline("two")], report=print) as (live, failed):
        assert (len(live), failed) == (2, ())
        started = list(world.calls)
    assert started[:3] == ["services one", "services two", "spark"]
    assert world.calls[len(started) :][0] == "end of spark"
    assert {call for call in world.calls if call.startswith("end")} == {f"end of {name}" for name in started}


@pytest.mark.parametrize("step", ["services one", "http one", "lake one"])
def test_live_pipelines_leave_out_a_pipeline_that_fails_to_start(world: World, settings: Settings, step: str) -> None:
    world.broken = {step}
    messages: list[str] = []
    with live_pipelines(settings, [pipeline("one"), pipeline("two")], report=messages.append) as (live, failed):
        assert len(live) == 1
        assert [error.what for error in failed] == [f"{step} can't be had"]
        ran = [call for call in world.calls if call.endswith(" one") and not call.startswith("end") and call != step]
        assert all(f"end of {call}" in world.calls for call in ran), "nothing of it is left running"
        assert "end of lake two" not in world.calls
    assert len(messages) == 1
    assert messages[0].startswith("one is left out: ")


def test_live_pipelines_raise_if_none_starts(world: World, settings: Settings) -> None:
    world.broken = {"services one", "lake two"}
    with (
        pytest.raises(LockedError, match="services one"),
        live_pipelines(settings, [pipeline("one"), pipeline("two")], report=print),
    ):
        raise AssertionError
    assert "end of spark" in world.calls


def test_live_pipelines_refuse_a_shared_table(world: World, settings: Settings) -> None:
    first = pipeline("one")
    with (
        pytest.raises(SpecError, match=r"one and two both write one\.events"),
        live_pipelines(settings, [first, replace(first, name="two")], report=print),
    ):
        raise AssertionError
    assert world.calls == []
