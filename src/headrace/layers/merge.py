"""Puts the rows of touched keys into a table, by writing anew only the files that hold rows which change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType, BinaryType, BooleanType, DateType, StringType, TimestampNTZType, TimestampType

from headrace.layers.carry import has_unknown
from headrace.layers.glance import Glance
from headrace.layers.joins import drop_matching, equal_columns, keep_matching
from headrace.layers.removed import DELETED
from headrace.layers.versions import comparable
from headrace.spec.layers import BUILD_ID, CARRIED, LayerTable
from headrace.tables.build_commit import FileChanges
from headrace.tables.files import MANY_SMALL, ROWS_PER_FILE
from headrace.tables.spark_files import FILE, JavaObject, ScanFiles, StagedFiles, plan_files, read_files, stage_files
from headrace.tables.spark_times import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_SMALL_BYTES = 8 * 1024 * 1024

Bounds = Mapping[str, tuple[Any, Any, bool]]
"""The least and the greatest value of a column, and whether it is null anywhere."""


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


def bounds_of(rows: DataFrame, table: LayerTable) -> list[Column]:
    """Gives back the aggregates that `read_bounds` understands: ranges of keys and constant columns."""
    columns: list[Column] = []
    for name in _bounded(rows, table):
        column = F.col(f"`{name}`")
        as_text = _as_text(rows.schema[name].dataType)
        columns += [
            as_text(F.min(column)).alias(f"__min_{name}"),
            as_text(F.max(column)).alias(f"__max_{name}"),
            F.coalesce(F.max(column.isNull()), F.lit(False)).alias(f"__null_{name}"),
        ]
    return columns


def read_bounds(rows: DataFrame, table: LayerTable, values: Mapping[str, Any]) -> Bounds:
    return {
        name: (values[f"__min_{name}"], values[f"__max_{name}"], bool(values[f"__null_{name}"]))
        for name in _bounded(rows, table)
    }


@contextmanager
def merge(
    spark: SparkSession,
    java_table: JavaObject,
    table: LayerTable,
    *,
    columns: Sequence[str],
    snapshot_id: int | None,
    rows: DataFrame,
    touched: DataFrame | None,
    decide: Any,
    glance: Glance,
    bounds: Bounds,
    build_id: int,
) -> Iterator[tuple[Merged, DataFrame]]:
    """Gives the files of the merge, staged, and the old rows that changed (with `_tombstone`), while the block runs.

    `touched` are the keys whose rows are decided again; None stands for all. A row that stays as it is keeps the build that
    wrote it, whatever file it moves to.
    """
    candidates = plan_files(java_table, snapshot_id=snapshot_id, where=_expression(spark, bounds))
    with read_files(spark, java_table, candidates) as all_old:
        row_key = [*table.keys, *table.sequence_by] if table.kind == "history" else list(table.keys)
        old = all_old if touched is None else keep_matching(all_old, touched, table.keys)
        old = old.select(*(F.col(f"`{name}`") for name in columns), F.col(FILE)).persist()
        known = old.drop(FILE).withColumn(DELETED, F.lit(False))
        desired = decide(rows, known, glance)
        verdicts = _compare(desired, old, row_key=row_key, columns=columns).persist()
        try:
            counts = verdicts.groupBy("file").agg(
                F.count("new").alias("new"),
                F.count("old").alias("old"),
                F.count("deletion").alias("deletion"),
                *(_carried_in("new") if table.unchanged else ()),
                *(_carried_in("old") if table.unchanged else ()),
            )
            found = counts.collect()
            touched_files = [row["file"] for row in found if row["file"] is not None]
            written = sum(row["new"] for row in found)
            gone = sum(row["old"] for row in found)
            deletions = sum(row["deletion"] for row in found)
            files = candidates.among(touched_files + _small_files(candidates, touched_files, table, written))
            staged = StagedFiles()
            if written or gone:
                staged = _stage(spark, java_table, verdicts, files, row_key, columns, build_id, written)
            merged = Merged(
                staged,
                FileChanges(staged.files, tuple(files.tasks.values()), snapshot_id=snapshot_id),
                written=written,
                gone=gone,
                read_bytes=candidates.bytes,
                deletions=deletions,
                carried=sum(row["carried_new"] - row["carried_old"] for row in found) if table.unchanged else 0,
                unknown=sum(row["unknown_new"] - row["unknown_old"] for row in found) if table.unchanged else 0,
            )
            before = verdicts.where(F.col("old").isNotNull()).select("old.*").withColumn(DELETED, F.lit(False))
            if deletions:
                before = before.unionByName(
                    verdicts.where(F.col("deletion").isNotNull()).select("deletion.*").withColumn(DELETED, F.lit(True))
                )
            yield merged, before
        finally:
            verdicts.unpersist()
            old.unpersist()


def _carried_in(side: str) -> tuple[Column, Column]:
    carried = F.col(side)[CARRIED]
    return F.count(carried).alias(f"carried_{side}"), F.count_if(has_unknown(carried)).alias(f"unknown_{side}")


def _compare(desired: DataFrame, old: DataFrame, *, row_key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Gives back what changes: `new` and `old` rows, either of which may be missing, and the `file` of the old one.

    A row of `desired` with `_tombstone` is no new row; it is the `deletion` itself.
    """
    chosen = [F.col(f"`{name}`") for name in columns]
    right = F.struct(*(comparable(old, name) for name in columns))
    left = F.struct(*(comparable(desired, name) for name in columns))
    new = desired.select(
        F.struct(*chosen).alias("row"),
        left.alias("new_value"),
        F.col(DELETED),
        *(F.col(f"`{name}`").alias(f"new_{index}") for index, name in enumerate(row_key)),
    )
    was = old.select(
        F.struct(*chosen).alias("old"),
        right.alias("old_value"),
        F.col(FILE).alias("file"),
        *(F.col(f"`{name}`").alias(f"old_{index}") for index, name in enumerate(row_key)),
    )
    keys = {f"new_{index}": f"old_{index}" for index in range(len(row_key))}
    both = new.join(was, equal_columns(keys), "full_outer")
    is_row = F.col("row").isNotNull() & ~F.col(DELETED)
    same = is_row & F.col("old").isNotNull() & F.col("new_value").eqNullSafe(F.col("old_value"))
    changed = both.where(~F.coalesce(same, F.lit(False)))
    return changed.select(
        F.when(is_row, F.col("row")).alias("new"),
        F.when(F.col(DELETED), F.col("row")).alias("deletion"),
        F.col("old"),
        F.col("file"),
    )


def _stage(
    spark: SparkSession,
    java_table: JavaObject,
    verdicts: DataFrame,
    files: ScanFiles,
    row_key: Sequence[str],
    columns: Sequence[str],
    build_id: int,
    written: int,
) -> StagedFiles:
    new = verdicts.where(F.col("new").isNotNull()).select("new.*").withColumn(BUILD_ID, F.lit(build_id).cast("long"))
    rows = written + sum(int(task.file().recordCount()) for task in files.tasks.values())
    parts = max(1, rows // ROWS_PER_FILE)
    if not files.tasks:
        return stage_files(spark, java_table, new.coalesce(parts))
    with read_files(spark, java_table, files) as kept:
        gone = verdicts.where(F.col("old").isNotNull()).select("old.*")
        rest = kept.select(*(F.col(f"`{name}`") for name in columns), F.col(BUILD_ID))
        rest = drop_matching(rest, gone, row_key)
        return stage_files(spark, java_table, new.unionByName(rest).coalesce(parts))


def _small_files(candidates: ScanFiles, chosen: Sequence[str], table: LayerTable, written: int) -> list[str]:
    """Gives back small files to write together with this build's rows, once there are many: live builds make one each."""
    if not written:
        return []
    small = [
        path
        for path, task in candidates.tasks.items()
        if path not in chosen and int(task.file().fileSizeInBytes()) < _SMALL_BYTES
    ]
    return small if len(small) >= MANY_SMALL else []


def _bounded(rows: DataFrame, table: LayerTable) -> list[str]:
    """Gives back the columns whose ranges say which files can hold a key: strings are spread all over."""
    names = dict.fromkeys((*table.keys, *table.constant))
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return [
        name
        for name in names
        if isinstance(kinds[name], AtomicType)
        and not isinstance(kinds[name], (BinaryType, BooleanType))
        and (name in table.constant or not isinstance(kinds[name], StringType))
    ]


def _as_text(kind: DataType) -> Any:
    """Gives back how a value of a column becomes what Iceberg's expressions take."""
    if isinstance(kind, TimestampType):
        return lambda column: F.date_format(column, TIMESTAMP)
    if isinstance(kind, TimestampNTZType):
        return lambda column: F.date_format(column, TIMESTAMP_NTZ)
    if isinstance(kind, DateType):
        return lambda column: column.cast("string")
    return lambda column: column


def _expression(spark: SparkSession, bounds: Bounds) -> JavaObject | None:
    """Gives back the condition that a file must be able to satisfy to hold a touched key."""
    expressions = spark._jvm.org.apache.iceberg.expressions.Expressions  # type: ignore[union-attr]
    found = None
    for name, (least, greatest, has_null) in bounds.items():
        parts = []
        if least is not None:
            parts.append(
                getattr(expressions, "and")(
                    expressions.greaterThanOrEqual(name, least), expressions.lessThanOrEqual(name, greatest)
                )
            )
        if has_null or least is None:
            parts.append(expressions.isNull(name))
        either = parts[0] if len(parts) == 1 else getattr(expressions, "or")(*parts)
        found = either if found is None else getattr(expressions, "and")(found, either)
    return found
