"""A build that dies at any point and is started again ends as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.build import build as build_module
from headrace.build import keeping
from tests.build.pond import TABLES, Pond, assert_same
from tests.build.test_one_truth import cut, events_of
from tests.dying import KilledError, die_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KINDS = ("a/appended.sql", "a/latest.sql", "a/present.sql", "a/versions.sql", "b/groups.sql", "b/still_there.sql")


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The place where the next build dies; it is taken out when it does."""
    return die_in(monkeypatch, build_module, keeping)


def test_a_build_that_dies_is_taken_up_again(spark: SparkSession, tmp_path: Path, die_at: list[str]) -> None:
    random = Random(11)
    events = events_of(random, 40)
    tables = {name: TABLES[name] for name in KINDS}
    pond = Pond(tmp_path, spark, tables)
    parts = list(cut(events, random, 3))
    pond.land(parts[0])
    pond.build()
    names = [each.table for each in pond.pipeline.tables]
    for part, place in zip(parts[1:], ("staged", "committed"), strict=True):
        pond.land(part)
        die_at[:] = ["pond.present:kept"]
        with pytest.raises(KilledError):
            pond.build("present")
        for name in names:
            die_at[:] = [f"{name}:{place}"]
            with pytest.raises(KilledError):
                pond.build(name.name)
    pond.build()
    found = pond.all_rows()
    pond.build(full_refresh=True)
    assert_same(found, pond.all_rows())


def test_an_application_that_is_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    """The same with a real SIGKILL of a real command, between the staged files and the commit."""
    from tests.application import start_headrace

    pond = Pond(tmp_path, spark, {name: TABLES[name] for name in ("a/latest.sql", "b/groups.sql")})
    pond.land(events_of(Random(3), 30))
    application = start_headrace(
        "build", "pond", environ={"HEADRACE_FAULT": "kill-application@pond.groups:staged"}, folder=tmp_path
    )
    assert application.wait() != 0
    assert sum(pond.rows("latest").values()) > 0
    pond.build()
    found = pond.all_rows()
    pond.build(full_refresh=True)
    assert_same(found, pond.all_rows())
