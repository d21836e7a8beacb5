"""Changed rows of a large file are deleted with merge-on-read, for engines, counts, the next build and a purge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from pyiceberg.table import Table

from headrace.build.entities.read_files import ReadFiles
from headrace.iceberg.catalog.tables import count_rows
from headrace.iceberg.files.row_counts import rows_after
from headrace.iceberg.files.spark_files import read_snapshot
from headrace.iceberg.maintenance.purge import purge_table
from headrace.serving.web.table_facts import list_files
from headrace.spec import TableName
from tests.build.entities.people import TABLES, People, Record, clusters
from tests.build.layer_lake import assert_same
from tests.support.engine_rows import IN_PROCESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = TableName("pond", "entity_index")
LATER = 1e12


class Seen:
    """The index as each engine sees it."""

    def __init__(self, people: People) -> None:
        self._people = people

    @property
    def table(self) -> Table:
        return self._people.catalog.load_table(str(NAME))

    def files(self) -> set[str]:
        return {task.file.file_path for task in self.table.scan().plan_files()}

    def deleted(self) -> list[int]:
        """Return how many rows each delete file deletes."""
        return sorted(self.table.inspect.delete_files()["record_count"].to_pylist())

    def check(self, *, rows: int) -> None:
        """All engines see the same rows, and what metadata says of their number is true."""
        wanted = {key: row["entity_id"] for key, row in self._people.index().items()}
        assert len(wanted) == rows == count_rows(self.table) == list_files(self.table)["rows"]
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        columns = ["source", "source_id", "entity_id"]
        by_engine = {"spark": read_snapshot(self._people.lake.spark, NAME, snapshot.snapshot_id).select(*columns).toArrow()}
        sql = f"SELECT {', '.join(columns)} FROM {NAME}"
        by_engine |= {engine.value: ask(self._people.catalog, sql) for engine, ask in IN_PROCESS.items()}
        for engine, answer in by_engine.items():
            listed = answer.to_pylist()
            assert len(listed) == rows, engine
            assert {f"{row['source']}:{row['source_id']}": row["entity_id"] for row in listed} == wanted, engine


@pytest.mark.spark
def test_merge_on_read_until_many_rows_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark, {name: TABLES[name] for name in ("a/staged.sql", "b/entity_index.sql", "c/sizes.sql")})
    seen = Seen(people)
    people.send(*(Record("shop", str(number), email=f"p{number}@b.org", day=number) for number in range(100)))
    first = seen.files()
    seen.check(rows=100)

    people.send(Record("crm", "1", email="p7@b.org", phone="+14155552671"))
    assert seen.deleted() == []
    index = people.send(Record("crm", "2", email="p9@b.org", phone="+14155552671"), Record("shop", "20", op="d", n=2))
    assert index["shop:9"]["entity_id"] == index["shop:7"]["entity_id"]
    assert sum(seen.deleted()) == 2, "one that merged and one that went"
    seen.check(rows=101)

    index = people.send(Record("shop", "30", email="p31@b.org", n=2))
    assert index["shop:31"]["entity_id"] == index["shop:30"]["entity_id"]
    assert sum(seen.deleted()) == 4
    assert len(seen.deleted()) <= len(first), "a data file has one delete file at most"
    assert first < seen.files()
    seen.check(rows=101)

    purge_table(people.catalog, NAME, folders=(seen.table.location(),), before=LATER)
    seen.check(rows=101)
    summary = [rows_after(snapshot) for snapshot in seen.table.snapshots()]
    assert summary == [101]

    outcome = people.send(*(Record("shop", str(number), email=f"new{number}@b.org", n=2) for number in range(40, 100)))
    assert not first & seen.files(), "many of their rows are deleted: they are rewritten"
    seen.check(rows=101)
    rows = people.all_rows()
    people.build(full_refresh=True)
    assert_same(people.all_rows(), rows)
    assert clusters(people.index()) == clusters(outcome)
    assert seen.deleted() == []
    seen.check(rows=101)


def _longs(*names: str) -> pl.Schema:
    return pl.Schema(dict.fromkeys(names, pl.Int64()))


def test_read_files_stay_within_their_bound() -> None:
    frame = pl.DataFrame({"key": range(1_000), "value": range(1_000)})
    cached = ReadFiles(most_bytes=40_000)
    cached.put("lake/a/1", frame)
    cached.put("lake/a/2", frame)
    assert cached.get("lake/a/1", _longs("value")) is not None
    assert cached.get("lake/a/1", _longs("value", "other")) is None
    assert cached.get("lake/a/1", pl.Schema({"value": pl.Int32()})) is None, "it was read with another type"
    cached.put("lake/b/3", frame)
    assert cached.get("lake/a/2", _longs("key")) is None, "it was not asked for longest"
    cached.keep_only({"lake/a/2"}, under="lake/a/")
    assert cached.get("lake/a/1", _longs("key")) is None
    assert cached.get("lake/b/3", _longs("key")) is not None


def test_parts_of_files_are_kept_where_there_is_room() -> None:
    frame = pl.DataFrame({"key": range(1_000), "value": range(1_000)})
    cached = ReadFiles(most_bytes=40_000)
    cached.put("lake/a/1", frame)
    cached.put_parts("lake/a/1", {0: frame.head(500), 500: frame.tail(500)})
    assert sorted(cached.parts("lake/a/1", _longs("value"))) == [0, 500]
    assert cached.parts("lake/a/1", _longs("other")) == {}
    cached.put_parts("lake/a/2", {0: frame})
    assert [*cached.parts("lake/a/1", _longs("key"))] == [500], "the first was not asked for longest"
    cached.put("lake/a/2", frame)
    assert cached.parts("lake/a/2", _longs("key")) == {}, "parts go before frames"
    assert cached.get("lake/a/1", _longs("key")) is not None
