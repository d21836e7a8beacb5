"""What is said of layer tables without Spark: rows, builds, how far behind they are, what failed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.runs.figures import list_layer_tables
from headrace.serving.figures import TableStatus
from headrace.tables.catalog import open_catalog
from tests.build.pond import Event, Pond

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LATEST = """/*
keys: [k]
sequence_by: n
expect:
  there is a group: g IS NOT NULL
  the amount is positive: amount > 0
*/
SELECT k, n, g, amount FROM pond.events"""
GROUPS = """/*
keys: [g]
*/
SELECT g, count(*) AS keys FROM pond.latest WHERE g IS NOT NULL GROUP BY g"""


def status(pond: Pond, *, now: datetime | None = None) -> list[TableStatus]:
    now = now or datetime.now(timezone.utc)
    return list(list_layer_tables(open_catalog(pond.settings), pond.pipeline, now=now))


def test_rows_builds_delay_and_what_failed(tmp_path: Path, spark: SparkSession) -> None:
    pond = Pond(tmp_path, spark, {"a/latest.sql": LATEST, "b/groups.sql": GROUPS})
    for each in status(pond):
        assert (each.rows, each.build_id, each.last_build, each.behind_seconds) == (0, 0, None, None)
    started = datetime.now(timezone.utc)
    pond.land([Event(f"e{number}", f"k{number}", "g" if number else None, 1, 100, "", number) for number in range(5)])
    pond.build()
    built_at = status(pond)[0].last_build
    assert built_at
    assert started <= built_at <= datetime.now(timezone.utc)
    latest, groups = status(pond, now=built_at + timedelta(hours=1))
    assert (latest.table, latest.kind, latest.rows, latest.build_id) == ("pond.latest", "upsert", 5, 1)
    assert (groups.table, groups.kind, groups.rows, groups.build_id) == ("pond.groups", "aggregate", 1, 1)
    assert (latest.behind_seconds, groups.behind_seconds) == (0.0, 0.0)
    assert latest.expectations == 2
    assert latest.batch_seconds
    assert (latest.state, latest.bad_rows) == ("fresh", 1)
    assert latest.freshness_seconds == pytest.approx(3600)
    assert status(pond, now=built_at + timedelta(seconds=1))[0].rate == pytest.approx(5 / 60)
    assert latest.rate == 0, "of the last minute"
    assert [(each.sentence, each.checked, each.failed) for each in latest.failing] == [("there is a group", 5, 1)]
    pond.land([Event("e9", "k9", "g", 1, 100, "", 9)])
    latest, groups = status(pond, now=datetime.now(timezone.utc) + timedelta(hours=1))
    assert latest.behind_seconds == pytest.approx(3600, abs=60)
    assert latest.state == "behind"
    assert groups.behind_seconds == latest.behind_seconds, "also by way of a table that is behind"
    assert (latest.rows, latest.build_id) == (5, 1)
