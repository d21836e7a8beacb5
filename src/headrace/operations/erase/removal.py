"""Remove a person's rows from a table's files: stage copies of the affected files without them."""

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
    """The conditions for removed and redacted rows, and the columns of a row after redaction."""

    removed: Column
    redacted: Column
    columns: list[Column]


@dataclass(frozen=True)
class RowOrigin:
    """The Kafka coordinates of a row (none for rows of builds), and whether it stays, redacted."""

    stream: str
    partition: int | None
    offset: int | None
    stays: bool


@dataclass(frozen=True)
class PersonRows:
    """The rows of a table to erase, by their origins, and the files that contain them."""

    table: TableName
    origins: tuple[RowOrigin, ...] = ()
    files: tuple[str, ...] = ()
    snapshot_id: int | None = None

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def removed(self) -> int:
        """The number of rows to remove."""
        return sum(not origin.stays for origin in self.origins)

    @property
    def redacted(self) -> int:
        """The number of others' rows to redact."""
        return sum(origin.stays for origin in self.origins)


Mark = Callable[["DataFrame"], Marks]
"""Returns the marks of a table's rows."""


def find_rows(spark: SparkSession, name: TableName, mark: Mark, *, place: Sequence[Column]) -> PersonRows:
    """Return the person's rows of a table. `place` are the stream, partition and offset columns of a row."""
    table = load_java_table(spark, name)
    current = table.currentSnapshot()
    if current is None:
        return PersonRows(name)
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
        affected = chosen.collect()
    origins = tuple(RowOrigin(row["stream"], row["partition"], row["offset"], not row["removed"]) for row in affected)
    return PersonRows(name, origins, tuple(sorted({row["file"] for row in affected})), snapshot_id)


def stage_rest(spark: SparkSession, erased: PersonRows, mark: Mark) -> Replaced:
    """Return the files with rows to erase, and staged files with the rest of their rows."""
    if not erased:
        return Replaced()
    table = load_java_table(spark, erased.table)
    files = plan_files(table, snapshot_id=erased.snapshot_id).among(erased.files)
    count = sum(int(task.file().recordCount()) for task in files.tasks.values())
    with read_files(spark, table, files) as rows:
        plain = rows.drop(FILE)
        marks = mark(plain)
        rest = plain.where(~marks.removed).select(*marks.columns)
        staged = stage_files(spark, table, rest.coalesce(max(1, count // ROWS_PER_FILE)))
    return Replaced(tuple(task.file() for task in files.tasks.values()), staged.files)
