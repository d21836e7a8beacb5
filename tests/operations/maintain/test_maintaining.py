"""Maintenance beside builds: what it must not change, and which side yields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.build import build as build_module
from headrace.errors import OutdatedError
from headrace.iceberg.commits.build_commit import commit_build
from headrace.iceberg.commits.small_build_commit import commit_small_build
from headrace.iceberg.files.spark_files import load_java_table, plan_files
from headrace.iceberg.files.storage import list_all
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.iceberg.maintenance import compact
from headrace.iceberg.maintenance.compact import Compaction, compact_group
from headrace.iceberg.maintenance.groups import Group, list_files
from headrace.landing.commit_log import read_log
from headrace.landing.places import places_of
from headrace.operations.maintain import maintaining
from headrace.sessions.building import build, plan
from headrace.spec import TableName
from tests.build.entities.people import TABLES as PEOPLE
from tests.build.entities.people import People, Record
from tests.build.layer_lake import TABLES, Event, LayerLake, assert_same
from tests.operations.maintain.keeping import maintain_all, thorough

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FOLLOWED = {name: TABLES[f"a/{name}.sql"] for name in ("latest", "present")}
READERS = {name: TABLES[f"b/{name}.sql"] for name in ("groups", "still_there")}


def random_events(chance: Random, count: int, *, start: int) -> list[Event]:
    return [
        Event(
            f"e{number}",
            f"k{chance.randrange(6)}",
            chance.choice(["x", "y", "z"]),
            number,
            chance.randrange(1, 900),
            chance.choice("uuud"),
            chance.randrange(3_000),
        )
        for number in range(start, start + count)
    ]


def layer_lake_of(folder: Path, spark: SparkSession, *parts: dict[str, str]) -> LayerLake:
    tables = {f"a/{name}.sql": text for part in parts for name, text in part.items()}
    return LayerLake(folder, spark, tables)


def people_of(folder: Path, spark: SparkSession) -> People:
    """Return a lake with a table of entities that has a position delete."""
    people = People(folder, spark, {name: PEOPLE[name] for name in ("a/staged.sql", "b/entity_index.sql")})
    people.send(*(Record("shop", str(number), email=f"p{number}@example.com") for number in range(40)))
    people.send(Record("shop", "1", email="p2@example.com", n=2))
    return people


def test_maintenance_keeps_the_snapshots_of_a_lagging_reader(spark: SparkSession, tmp_path: Path) -> None:
    chance, sent = Random(4), 0
    layer_lake = layer_lake_of(tmp_path / "kept", spark, FOLLOWED, READERS)
    keeper = thorough(layer_lake.settings)
    whole = layer_lake_of(tmp_path / "whole", spark, FOLLOWED, READERS)
    for number in range(6):
        events = random_events(chance, 4, start=sent)
        sent += len(events)
        layer_lake.land(events)
        whole.land(events)
        but_readers = [table.table for table in layer_lake.pipeline.tables if table.table.name not in READERS]
        built = build(layer_lake.lake, only=but_readers if number else None)
        assert not [outcome.error for outcome in built if outcome.error]
        if number in (2, 4):
            done = maintain_all(keeper, layer_lake.lake.spark, layer_lake.pipeline)
    assert done["pond.events"].after.files == 1
    assert done["pond.latest"].after.snapshots == 2, "the newest, and the one that its reader has read"
    assert count_removed(layer_lake) > 0, "its reader has still to read them"
    layer_lake.build()
    maintain_all(keeper, layer_lake.lake.spark, layer_lake.pipeline)
    assert count_removed(layer_lake) == 0, "no reader needs them any more"
    whole.build()
    assert_same(layer_lake.all_rows(), whole.all_rows())


def count_removed(layer_lake: LayerLake) -> int:
    return int(layer_lake.catalog.load_table("metadata.removed_pond_latest").scan().to_arrow().num_rows)


def test_compaction_changes_nothing_for_readers(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = layer_lake_of(tmp_path, spark, FOLLOWED)
    for number in range(6):
        layer_lake.land(random_events(Random(number), 20, start=number * 20))
    layer_lake.build()
    table = layer_lake.catalog.load_table("pond.events")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["kafka_offset"])
    keeper = thorough(layer_lake.settings)
    done = maintain_all(keeper, layer_lake.lake.spark, layer_lake.pipeline, "pond.events")["pond.events"]
    assert (done.before.files, done.after.files, done.after.snapshots, done.gave_way) == (6, 1, 2, 0)
    after = layer_lake.catalog.load_table("pond.events")
    assert after.scan().to_arrow().to_pylist() == rows, "the same rows, in their order"
    assert read_ledger(after) == read_ledger(table)
    assert {planned.action for planned in plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)} == {
        "nothing"
    }
    logged = {entry.s3_key for entry in read_log(places_of(layer_lake.pipeline.streams[0], layer_lake.settings).commit_log)}
    assert {file.path for file in list_files(after)} == logged
    again = maintain_all(keeper, layer_lake.lake.spark, layer_lake.pipeline, "pond.events")["pond.events"]
    assert (again.changed, again.after.files) == (False, 1)
    layer_lake.land(random_events(Random(9), 5, start=200))
    assert sum(layer_lake.rows("events").values()) == 125


def test_compaction_applies_position_deletes(spark: SparkSession, tmp_path: Path) -> None:
    people = people_of(tmp_path, spark)
    before = people.all_rows()
    done = maintain_all(thorough(people.settings), people.lake.spark, people.pipeline, "pond.entity_index")
    sizes = done["pond.entity_index"]
    assert sizes.before.delete_files > 0
    assert (sizes.after.delete_files, sizes.after.files) == (0, 1)
    assert_same(people.all_rows(), before)


def test_build_is_planned_again_after_a_compaction(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with position deletes: a delete must not point to a file that was compacted away."""
    people = people_of(tmp_path, spark)
    commits: list[str] = []

    def compact_first(name: Any) -> None:
        if str(name) not in commits:
            _rewrite_all(people, spark, name)
        commits.append(str(name))

    def commit_with_java(spark: SparkSession, catalog: Any, name: Any, **rest: Any) -> Any:
        compact_first(name)
        return commit_build(spark, catalog, name, **rest)

    def commit_without_java(catalog: Any, name: Any, **rest: Any) -> Any:
        compact_first(name)
        return commit_small_build(catalog, name, **rest)

    monkeypatch.setattr(build_module, "commit_build", commit_with_java)
    monkeypatch.setattr(build_module, "commit_small_build", commit_without_java)
    people.send(Record("shop", "2", email="p3@example.com", n=3))
    assert sorted(commits) == ["pond.entity_index"] * 2 + ["pond.staged"] * 2
    built = people.all_rows()
    people.build(full_refresh=True)
    assert_same(built, people.all_rows())


def _rewrite_all(people: People, spark: SparkSession, name: Any) -> None:
    """Rewrite all files of a table, whether it is worthwhile or not."""
    table = people.catalog.load_table(str(name))
    current = table.current_snapshot()
    assert current is not None
    planned = plan_files(load_java_table(spark, name), snapshot_id=current.snapshot_id)
    assert compact_group(spark, name, Group(list_files(table)), planned, at=current, how=Compaction((), 1 << 20))


@dataclass
class LateCatalog:
    """A Java table whose first commit is carried out only when the second one is tried."""

    spark: SparkSession
    late: list[Any] = field(default_factory=list)
    table: Any = None

    def load(self, spark: SparkSession, name: TableName) -> LateCatalog:
        self.table = load_java_table(spark, name)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def newRewrite(self) -> LateRewrite:  # noqa: N802
        return LateRewrite(self, self.table.newRewrite())


@dataclass
class LateRewrite:
    """An update of the table; every call but the commit is passed on."""

    catalog: LateCatalog
    update: Any

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> LateRewrite:
            getattr(self.update, name)(*given)
            return self

        return call

    def commit(self) -> None:
        self.catalog.late.append(self.update)
        if len(self.catalog.late) == 1:
            self.catalog.spark._jvm.java.util.Optional.empty().get()  # type: ignore[union-attr]
        for update in self.catalog.late:
            update.commit()


def test_orphan_removal_keeps_the_files_of_a_late_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second try does not find the files that it replaces, because the first one has replaced them."""
    layer_lake = layer_lake_of(tmp_path, spark, {})
    for number in range(6):
        layer_lake.land([Event(f"e{number}", f"k{number}", "x", number, 100, "u", 0)])
    late = LateCatalog(spark)
    monkeypatch.setattr(compact, "load_java_table", late.load)
    keeper = thorough(layer_lake.settings)
    done = maintain_all(keeper, layer_lake.lake.spark, layer_lake.pipeline, "pond.events")["pond.events"]
    assert len(late.late) == 2
    assert (done.after.files, done.gave_way) == (1, 0)
    assert sum(layer_lake.rows("events").values()) == 6


def test_compaction_yields_to_a_build(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer_lake = layer_lake_of(tmp_path, spark, {"latest": FOLLOWED["latest"]})
    for number in range(6):
        layer_lake.land([Event(f"e{number}", f"k{number}", "x", number, 100, "u", 0)])
        layer_lake.build()
    layer_lake.land([Event("e9", "k0", "y", 9, 100, "u", 0)])
    table = layer_lake.catalog.load_table("pond.latest")
    gone: list[str] = []

    def build_first(spark: SparkSession, name: Any, *rest: Any, how: Compaction, **named: Any) -> bool:
        def before_commit(paths: Any) -> None:
            gone.extend(paths)
            layer_lake.build()

        return compact_group(spark, name, *rest, how=Compaction(how.order, how.target_bytes, before_commit), **named)

    monkeypatch.setattr(maintaining, "compact_group", build_first)
    done = maintain_all(thorough(layer_lake.settings), layer_lake.lake.spark, layer_lake.pipeline, "pond.latest")["pond.latest"]
    assert done.gave_way == 1
    stored = [file.uri for file in list_all(table.location())]
    assert gone
    assert not [uri for uri in stored for path in gone if uri.endswith(path.rsplit("/", 1)[1])]
    layer_lake.build()
    assert sum(layer_lake.rows("latest").values()) == 6


def test_commit_refuses_files_that_are_too_old(spark: SparkSession, tmp_path: Path) -> None:
    """Maintenance of another home may have removed the files, as if the machine had slept before the commit."""
    layer_lake = layer_lake_of(tmp_path, spark, {})
    for number in range(6):
        layer_lake.land([Event(f"e{number}", f"k{number}", "x", number, 100, "u", 0)])
    keeper = replace(thorough(layer_lake.settings), settings=replace(layer_lake.settings, maintain_grace_minutes=0))
    with pytest.raises(OutdatedError, match="too long ago"):
        maintain_all(keeper, layer_lake.lake.spark, layer_lake.pipeline, "pond.events")
    assert len(list_files(layer_lake.catalog.load_table("pond.events"))) == 6
