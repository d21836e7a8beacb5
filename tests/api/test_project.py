"""A project lands, builds, verifies and reads its lake from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import (
    BadQueryError,
    BuildError,
    LandingError,
    MissingLibraryError,
    NotFoundError,
    QueryError,
    SettingsError,
    SpecError,
)
from tests.serving.shop_lake import ShopLake
from tests.support.lake import Lake
from tests.support.orders import FILES, order, send_orders, write_shop
from tests.support.spark import use_spark
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenShop = Callable[[], headrace.Project]


@pytest.fixture
def open_shop(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenShop]:
    """Open the project of this test's lake, with the pipeline shop."""
    use_spark(monkeypatch, spark)
    write_shop(lake.folder)
    projects: list[headrace.Project] = []

    def opened() -> headrace.Project:
        environ = {**lake.environ, "ORDERS_TOPIC": lake.topic}
        projects.append(headrace.open(lake.folder, environ=environ))
        return projects[-1]

    yield opened
    for project in projects:
        project.close()


@pytest.mark.services
def test_project_lands_builds_and_reads(lake: Lake, open_shop: OpenShop) -> None:
    with open_shop() as project:
        assert project.pipelines == ("shop",)
        assert project.land() == (headrace.StreamLanding("shop.orders", 0, 0),)
        send_orders(lake.servers, lake.topic, [order("a", "10.00"), order("b", "-1.00"), order("c", "5.50", day=2)])
        assert project.land() == (headrace.StreamLanding("shop.orders", 3, 0),)
        assert [(build.table, build.state, build.rows) for build in project.build()] == [
            ("shop.orders", "built", 2),
            ("shop.revenue", "built", 2),
        ]
        assert [build.state for build in project.build()] == ["unchanged", "unchanged"]
        assert [(check.sentence, check.last_failed) for check in project.quality()] == [("the amount is positive", 1)]
        assert project.publish() == 0
        assert project.verify().holds
        (status,) = project.status()
        assert (status.name, [table.rows for table in status.tables]) == ("shop", [2, 2])
        assert list(project.query("SELECT sum(revenue) AS revenue FROM shop.revenue")) == [{"revenue": Decimal("15.50")}]
        assert project.tables()[-2:] == ("shop.orders", "shop.revenue")


@pytest.mark.services
def test_table_is_read_by_every_library(lake: Lake, open_shop: OpenShop) -> None:
    project = open_shop()
    project.land()
    send_orders(lake.servers, lake.topic, [order("a", "10.00"), order("c", "5.50", day=2)])
    project.land()
    project.build()
    revenue = project.table("shop.revenue")
    assert (revenue.name, revenue.count(), revenue.columns) == (
        "shop.revenue",
        2,
        ("day", "orders", "revenue", "_build_id"),
    ), "states of aggregates are hidden"
    total = Decimal("15.50")
    assert sum(revenue.to_arrow()["revenue"].to_pylist()) == total
    assert revenue.to_polars().collect()["revenue"].sum() == total
    assert revenue.to_duckdb().sum("revenue").fetchone() == (total,)
    assert sum(row.revenue for row in revenue.to_spark().collect()) == total
    snapshot = revenue.iceberg.current_snapshot()
    assert snapshot is not None
    assert sum(row.revenue for row in project.table("shop.revenue", at=snapshot.snapshot_id).to_spark().collect()) == total
    joined = revenue.to_duckdb().set_alias("r").join(project.table("shop.orders").to_duckdb().set_alias("o"), "r.day = o.day")
    assert joined.to_arrow_table().num_rows == 2, "relations of a project share a connection"
    assert revenue.iceberg.metadata.format_version == 2


@pytest.mark.services
def test_failed_table_raises_after_the_others_are_built(lake: Lake, open_shop: OpenShop) -> None:
    strict = FILES["shop/orders.sql"].replace("on_failure: drop", "on_failure: fail")
    project = open_shop()
    (lake.folder / "pipelines/shop/shop/orders.sql").write_text(strict, encoding="utf-8")
    project.land()
    send_orders(lake.servers, lake.topic, [order("b", "-1.00")])
    project.land()
    builds = project.build(check=False)
    assert [build.state for build in builds] == ["failed", "skipped"]
    assert isinstance(builds[0].error, BuildError)
    with pytest.raises(BuildError, match="the amount is positive"):
        project.build()


@pytest.mark.services
def test_run_lands_and_builds_while_its_block_runs(lake: Lake, open_shop: OpenShop) -> None:
    project = open_shop()
    with project.run("shop") as run:
        assert run.pipelines == ("shop",)
        send_orders(lake.servers, lake.topic, [order("a", "10.00")])
        wait_until(lambda: "shop.revenue" in project.tables() and project.table("shop.revenue").count() == 1, what="a row")
        assert run.is_running
        assert not run.wait(0)
    assert run.wait(0)
    assert project.verify("shop").holds


def test_open_finds_the_nearest_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "notebooks" / "january"
    inner.mkdir(parents=True)
    (tmp_path / "headrace.toml").write_text("[local]\n", encoding="utf-8")
    monkeypatch.chdir(inner)
    assert headrace.open(environ={}).settings.folder == tmp_path
    assert repr(headrace.open(inner, environ={})) == f"headrace.open({str(inner)!r}, profile='local')"
    assert not (tmp_path / ".headrace").exists(), "opening creates nothing"


def test_open_refuses_folders_that_are_no_project(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"is the folder of a pipeline.*\nOpen the folder"):
        headrace.open(write_shop(tmp_path), environ={})
    with pytest.raises(SettingsError, match="not found: folder"):
        headrace.open(tmp_path / "nowhere", environ={})


def test_project_reads_tables_as_of_a_moment(tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    lake.watch.close()
    first = lake.land_in_turn(["a"], ["b"])
    moment = datetime.fromtimestamp(first.timestamp_ms / 1000, timezone.utc)
    with headrace.open(tmp_path, environ={}) as project:
        for at, ids in ((moment, ["a"]), (first.snapshot_id, ["a"]), (moment.isoformat(), ["a"]), (None, ["a", "b"])):
            assert project.query("SELECT id FROM raw.charges ORDER BY id", at=at).to_arrow()["id"].to_pylist() == ids
            table = project.table("raw.charges", at=at)
            assert table.count() == len(ids)
            assert sorted(table.to_arrow()["id"].to_pylist()) == ids
            assert sorted(table.to_polars().collect()["id"].to_list()) == ids
            assert sorted(table.to_duckdb().to_arrow_table()["id"].to_pylist()) == ids
        with pytest.raises(QueryError, match=r"raw\.charges did not exist at 1970-01-01"):
            project.table("raw.charges", at="1970-01-01")
        with pytest.raises(BadQueryError, match="neither a time nor a snapshot id"):
            project.query("SELECT 1", at="noon")


def test_project_without_a_lake_names_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = headrace.open(tmp_path, environ={})
    with pytest.raises(NotFoundError, match=r"table not found: \"lineage\.events\"\n.*headrace demo lineage --exit"):
        project.table("lineage.events")
    with pytest.raises(NotFoundError, match="The lake has no tables yet"):
        project.table("a.b")
    with pytest.raises(SpecError, match=r"the project has 5 pipelines: commerce,.*\nName one"):
        project.build()
    with pytest.raises(LandingError, match="nothing has been landed yet"):
        project.verify("lineage")
    with pytest.raises(BadQueryError, match="only SELECT queries"):
        project.query("DROP TABLE lineage.events")
    assert not (tmp_path / ".headrace" / "catalog.db").exists()


def test_missing_library_names_the_pip_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = headrace.open(tmp_path, environ={}).query("SELECT 1 AS one")
    assert (len(rows), rows.to_polars()["one"].to_list(), rows.to_duckdb().fetchall()) == (1, [1], [(1,)])
    monkeypatch.setattr("headrace.api.libraries.find_spec", lambda name: None)
    with pytest.raises(MissingLibraryError) as raised:
        rows.to_pandas()
    assert str(raised.value) == "pandas is not installed\nRun: pip install pandas"
