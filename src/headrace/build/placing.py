"""Puts what a merge has decided into a table's files.

Few changes are put in place where they are: new rows get a file of their own, old ones are deleted in theirs. Many are written
together with what is left of the files that held the old rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headrace.build.arrow import to_spark
from headrace.build.carry import has_unknown
from headrace.build.joins import drop_matching
from headrace.build.lake import Lake
from headrace.build.removed import DELETED
from headrace.spec.layers import BUILD_ID, CARRIED, LayerTable
from headrace.tables.arrow_files import arrow_file, stage_arrow, with_constants
from headrace.tables.build_commit import FileChanges
from headrace.tables.deleted_rows import MOST_DELETED, stage_deletes
from headrace.tables.files import MANY_SMALL, ROWS_PER_FILE
from headrace.tables.position_deletes import read_positions
from headrace.tables.spark_arrow import to_arrow
from headrace.tables.spark_columns import named
from headrace.tables.spark_files import FILE, POSITION, JavaObject, ScanFiles, StagedFiles, read_files, stage_files
from headrace.tables.staged_rows import data_folder

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import Column, DataFrame

PLACE = ("file", "position")
"""Where a row is: its file, and its number there."""

_SMALL_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Merged:
    """What was staged, the files that come and go, and how many rows changed.

    `deletions` are events that deleted a key, `carried` is how many rows more (or less) have a value that another event
    told, `unknown` one that none told.
    """

    staged: StagedFiles
    files: FileChanges
    written: int
    gone: int
    read_bytes: int
    deletions: int = 0
    carried: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Target:
    """The table that a build changes, as one snapshot has it, and its files that can hold rows which change.

    `columns` are those that a build decides.
    """

    lake: Lake
    java_table: JavaObject
    table: LayerTable
    snapshot_id: int | None
    candidates: ScanFiles
    columns: Sequence[str]
    build_id: int


def place_few(target: Target, verdicts: DataFrame) -> tuple[Merged, pa.Table]:
    """Gives back files, staged, and the old rows that changed, with `_tombstone`.

    A file is written anew when it has lost many rows, or is one of many small ones.
    """
    found = target.lake.catalog.load_table(str(target.table.table))
    decided = to_arrow(verdicts)
    new, deleted = _rows_in(decided, "new"), _rows_in(decided, "deletion")
    is_old = pc.is_valid(decided["old"])
    old, places = _rows_in(decided, "old"), pl.DataFrame(decided.filter(is_old).select(PLACE))
    gone = _positions(target, found, places)
    staged, changes = StagedFiles(), FileChanges()
    if new.num_rows or gone:
        anew = [path for path, each in gone.items() if len(each) > _rows_of(target, path) * MOST_DELETED]
        anew += _small_files(target.candidates, anew, new.num_rows)
        schema = verdicts.schema["new"].dataType
        assert isinstance(schema, StructType)
        staged = _stage_few(target, found, new, schema, target.candidates.among(anew), places)
        kept = {path: each for path, each in gone.items() if path not in anew}
        tasks = target.candidates.tasks
        deletes = stage_deletes(target.lake.spark, found, tasks, folder=data_folder(found), positions=kept)
        changes = FileChanges(
            staged.files,
            tuple(tasks[path] for path in anew),
            tuple((tasks[path], each) for path, each in deletes.items()),
            target.snapshot_id,
        )
    told, was = _carried_rows(new, target.table), _carried_rows(old, target.table)
    merged = Merged(
        staged,
        changes,
        written=new.num_rows,
        gone=old.num_rows,
        read_bytes=target.candidates.bytes,
        deletions=deleted.num_rows,
        carried=told[0] - was[0],
        unknown=told[1] - was[1],
    )
    before = [_marked(old, deleted=False), _marked(deleted, deleted=True)]
    return merged, pa.concat_tables(before, promote_options="permissive")  # what is never null differs


def place_many(target: Target, verdicts: DataFrame) -> tuple[Merged, DataFrame]:
    """Gives back files, staged, and the old rows that changed, with `_tombstone`. The files that held them are written anew."""
    unchanged = target.table.unchanged
    counts = verdicts.groupBy(PLACE[0]).agg(
        F.count("new").alias("new"),
        F.count("old").alias("old"),
        F.count("deletion").alias("deletion"),
        *(_carried_in("new") if unchanged else ()),
        *(_carried_in("old") if unchanged else ()),
    )
    found = counts.collect()
    touched = [row[PLACE[0]] for row in found if row[PLACE[0]] is not None]
    written = sum(row["new"] for row in found)
    gone = sum(row["old"] for row in found)
    deletions = sum(row["deletion"] for row in found)
    files = target.candidates.among(touched + _small_files(target.candidates, touched, written))
    staged = StagedFiles()
    if written or gone:
        new = verdicts.where(F.col("new").isNotNull()).select("new.*")
        staged = _stage_many(target, new, files, gone=verdicts.where(F.col("old").isNotNull()).select(*PLACE), written=written)
    merged = Merged(
        staged,
        FileChanges(staged.files, tuple(files.tasks.values()), snapshot_id=target.snapshot_id),
        written=written,
        gone=gone,
        read_bytes=target.candidates.bytes,
        deletions=deletions,
        carried=sum(row["carried_new"] - row["carried_old"] for row in found) if unchanged else 0,
        unknown=sum(row["unknown_new"] - row["unknown_old"] for row in found) if unchanged else 0,
    )
    before = verdicts.where(F.col("old").isNotNull()).select("old.*").withColumn(DELETED, F.lit(False))
    if deletions:
        before = before.unionByName(
            verdicts.where(F.col("deletion").isNotNull()).select("deletion.*").withColumn(DELETED, F.lit(True))
        )
    return merged, before


@contextmanager
def persisted(rows: DataFrame) -> Iterator[DataFrame]:
    """Gives rows that Spark computes once, while the block runs."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _rows_in(decided: pa.Table, side: str) -> pa.Table:
    """Gives back the rows in a column of structs; what is null there is none.

    They are written and read once: pyarrow ends the process when it casts a map that was filtered (25.0.1).
    """
    rows = pa.Table.from_struct_array(decided[side].drop_null())
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(written.getvalue()).read_all()


def _marked(rows: pa.Table, *, deleted: bool) -> pa.Table:
    return rows.append_column(DELETED, pa.repeat(pa.scalar(deleted), rows.num_rows))


def _rows_of(target: Target, path: str) -> int:
    return int(target.candidates.tasks[path].file().recordCount())


def _positions(target: Target, found: Table, places: pl.DataFrame) -> Mapping[str, pa.Array]:
    """Gives back for each file that loses rows the numbers of all that it has lost then, in their order."""
    gone: dict[str, pa.Array] = {}
    for (path,), each in places.partition_by(PLACE[0], as_dict=True).items():
        file = arrow_file(path, target.candidates.tasks[path])
        before = pl.Series(read_positions(found, path, file.deletes)).cast(pl.Int64)
        gone[path] = pl.concat([before, each[PLACE[1]].cast(pl.Int64)]).sort().to_arrow()
    return gone


def _stage_few(
    target: Target, found: Table, new: pa.Table, schema: StructType, anew: ScanFiles, gone: pl.DataFrame
) -> StagedFiles:
    spark = target.lake.spark
    if not anew.tasks and not found.spec().fields:
        rows = with_constants(new, {BUILD_ID: target.build_id})
        return stage_arrow(spark, target.java_table, found, [rows] if rows.num_rows else [])
    lost = spark.createDataFrame(gone.to_arrow(compat_level=pl.CompatLevel.oldest()))
    return _stage_many(target, to_spark(spark, new, schema), anew, gone=lost, written=new.num_rows)


def _stage_many(target: Target, new: DataFrame, files: ScanFiles, *, gone: DataFrame, written: int) -> StagedFiles:
    """Gives back files with the new rows and those of old files that stay. `gone` are the places of those that don't."""
    spark, java_table = target.lake.spark, target.java_table
    new = new.withColumn(BUILD_ID, F.lit(target.build_id).cast("long"))
    parts = max(1, (written + sum(_rows_of(target, path) for path in files.tasks)) // ROWS_PER_FILE)
    if not files.tasks:
        return stage_files(spark, java_table, new.coalesce(parts))
    with read_files(spark, java_table, files, with_positions=True) as kept:
        rest = drop_matching(kept, gone, dict(zip((FILE, POSITION), PLACE, strict=True)))
        rest = rest.select(*map(named, (*target.columns, BUILD_ID)))
        return stage_files(spark, java_table, new.unionByName(rest).coalesce(parts))


def _small_files(candidates: ScanFiles, chosen: Sequence[str], written: int) -> list[str]:
    """Gives back small files to write together with this build's rows, once there are many: live builds make one each."""
    if not written:
        return []
    small = [
        path
        for path, task in candidates.tasks.items()
        if path not in chosen and int(task.file().fileSizeInBytes()) < _SMALL_BYTES
    ]
    return small if len(small) >= MANY_SMALL else []


def _carried_in(side: str) -> tuple[Column, Column]:
    carried = F.col(side)[CARRIED]
    return F.count(carried).alias(f"carried_{side}"), F.count_if(has_unknown(carried)).alias(f"unknown_{side}")


def _carried_rows(rows: pa.Table, table: LayerTable) -> tuple[int, int]:
    """Gives back how many rows have a value that another event told, and how many one that none told."""
    if not table.unchanged:
        return 0, 0
    carried = rows[CARRIED].drop_null().to_pylist()
    return len(carried), sum(any(not each["is_known"] for each in row) for row in carried)
