"""Copy-on-write: apply many changes to a table by rewriting the files that hold old rows, with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.fill_unchanged import has_unknown
from headrace.build.joins import drop_matching
from headrace.build.merge import PLACE
from headrace.build.removed import DELETED
from headrace.build.target import Merged, Target
from headrace.iceberg.commits.build_commit import FileChanges
from headrace.iceberg.files.spark_files import (
    FILE,
    POSITION,
    JavaObject,
    ScanFiles,
    StagedFiles,
    load_java_table,
    read_files,
    stage_files,
)
from headrace.iceberg.files.write import MANY_SMALL, ROWS_PER_FILE
from headrace.spark.columns import build_number, named
from headrace.spec.model.layers import BUILD_ID, CARRIED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SMALL_BYTES = 8 * 1024 * 1024


def copy_on_write(target: Target, verdicts: DataFrame) -> tuple[Merged, DataFrame]:
    """Stage the result of a merge, and return it with the changed old rows, which have `_tombstone`."""
    candidates = target.old.scanned
    assert candidates is not None, "copy-on-write follows a scan"
    unchanged = target.table.unchanged
    counts = verdicts.groupBy(PLACE[0]).agg(
        F.count("new").alias("new"),
        F.count("old").alias("old"),
        F.count("deletion").alias("deletion"),
        *(_carried_counts("new") if unchanged else ()),
        *(_carried_counts("old") if unchanged else ()),
    )
    rows = counts.collect()
    touched = [row[PLACE[0]] for row in rows if row[PLACE[0]] is not None]
    written = sum(row["new"] for row in rows)
    gone = sum(row["old"] for row in rows)
    deletions = sum(row["deletion"] for row in rows)
    files = candidates.among(touched + _small_files(candidates, touched, written))
    staged = StagedFiles()
    if written or gone:
        new = verdicts.where(F.col("new").isNotNull()).select("new.*")
        places = verdicts.where(F.col("old").isNotNull()).select(*PLACE)
        staged = _stage(target, new, files, gone=places, written=written)
    merged = Merged(
        FileChanges(staged.files, tuple(files.tasks.values()), snapshot_id=target.old.snapshot_id),
        written=written,
        gone=gone,
        read_bytes=target.old.bytes,
        written_bytes=staged.bytes,
        deletions=deletions,
        carried=sum(row["carried_new"] - row["carried_old"] for row in rows) if unchanged else 0,
        unknown=sum(row["unknown_new"] - row["unknown_old"] for row in rows) if unchanged else 0,
    )
    before = verdicts.where(F.col("old").isNotNull()).select("old.*").withColumn(DELETED, F.lit(False))
    if deletions:
        before = before.unionByName(
            verdicts.where(F.col("deletion").isNotNull()).select("deletion.*").withColumn(DELETED, F.lit(True))
        )
    return merged, before


def _stage(target: Target, new: DataFrame, files: ScanFiles, *, gone: DataFrame, written: int) -> StagedFiles:
    """Write files with the new rows and the remaining rows of old files. `gone` are the places of rows that don't remain."""
    spark = target.lake.spark
    table: JavaObject = load_java_table(spark, target.table.table)
    new = new.withColumn(BUILD_ID, build_number(target.build_id))
    old_rows = sum(int(task.file().recordCount()) for task in files.tasks.values())
    parts = max(1, (written + old_rows) // ROWS_PER_FILE)
    if not files.tasks:
        return stage_files(spark, table, new.coalesce(parts))
    with read_files(spark, table, files, with_positions=True) as old:
        rest = drop_matching(old, gone, dict(zip((FILE, POSITION), PLACE, strict=True)))
        rest = rest.select(*map(named, (*target.columns, BUILD_ID)))
        return stage_files(spark, table, new.unionByName(rest).coalesce(parts))


def _small_files(candidates: ScanFiles, chosen: Sequence[str], written: int) -> list[str]:
    """Return the small files to merge with this build's rows once there are many: each live build adds one."""
    if not written:
        return []
    small = [
        path
        for path, task in candidates.tasks.items()
        if path not in chosen and int(task.file().fileSizeInBytes()) < _SMALL_BYTES
    ]
    return small if len(small) >= MANY_SMALL else []


def _carried_counts(side: str) -> tuple[Column, Column]:
    carried = F.col(side)[CARRIED]
    return F.count(carried).alias(f"carried_{side}"), F.count_if(has_unknown(carried)).alias(f"unknown_{side}")
