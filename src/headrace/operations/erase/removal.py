"""Takes a person's rows out of a table's files: those that hold them are written anew, with the rest of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.iceberg.commits.erase_commit import Replaced
from headrace.iceberg.files.spark_files import FILE, load_java_table, plan_files, read_files, stage_files
from headrace.iceberg.files.write import ROWS_PER_FILE
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class Marks:
    """Which rows go, which stay without what names the person, and how the columns of the latter are written."""

    removed: Column
    redacted: Column
    columns: list[Column]


@dataclass(frozen=True)
class Place:
    """Where in Kafka a row came from, and whether it stays, without what names the person. Rows of builds came from nowhere."""

    stream: str
    partition: int | None
    offset: int | None
    stays: bool


@dataclass(frozen=True)
class Found:
    """What of a table is to be erased: the rows, by where they came from, and the files that hold them."""

    table: TableName
    places: tuple[Place, ...] = ()
    files: tuple[str, ...] = ()
    snapshot_id: int | None = None

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def removed(self) -> int:
        """How many rows go."""
        return sum(not place.stays for place in self.places)

    @property
    def redacted(self) -> int:
        """How many rows of others stay, without what names the person."""
        return sum(place.stays for place in self.places)


Mark = Callable[["DataFrame"], Marks]
"""What decides on the rows of a table."""


def find_rows(spark: SparkSession, name: TableName, mark: Mark, *, place: Sequence[Column]) -> Found:
    """Return what of a table is the person's. `place` are the stream, partition and offset of a row."""
    table = load_java_table(spark, name)
    current = table.currentSnapshot()
    if current is None:
        return Found(name)
    snapshot_id = int(current.snapshotId())
    with read_files(spark, table, plan_files(table, snapshot_id=snapshot_id)) as rows:
        marks = mark(rows.drop(FILE))
        stream, partition, offset = place
        chosen = rows.where(marks.removed | marks.redacted).select(
            F.col(FILE).alias("file"),
            marks.removed.alias("removed"),
            stream.alias("stream"),
            partition.alias("partition"),
            offset.alias("offset"),
        )
        found = chosen.collect()
    places = tuple(Place(row["stream"], row["partition"], row["offset"], not row["removed"]) for row in found)
    return Found(name, places, tuple(sorted({row["file"] for row in found})), snapshot_id)


def stage_rest(spark: SparkSession, found: Found, mark: Mark) -> Replaced:
    """Return the files that hold rows to be erased, and staged ones with the rest of their rows."""
    if not found:
        return Replaced()
    table = load_java_table(spark, found.table)
    files = plan_files(table, snapshot_id=found.snapshot_id).among(found.files)
    count = sum(int(task.file().recordCount()) for task in files.tasks.values())
    with read_files(spark, table, files) as rows:
        plain = rows.drop(FILE)
        marks = mark(plain)
        rest = plain.where(~marks.removed).select(*marks.columns)
        staged = stage_files(spark, table, rest.coalesce(max(1, count // ROWS_PER_FILE)))
    return Replaced(tuple(task.file() for task in files.tasks.values()), staged.files)
