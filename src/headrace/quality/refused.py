"""Write rows that fail an expectation to the quarantine, with their table, reason and contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812

from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.commits.build_phases import phase
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.files.spark_files import load_java_table, stage_files
from headrace.iceberg.files.staged_rows import stage_rows
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.iceberg.metadata.quarantine import QUARANTINE, Refused, flush_quarantine, open_quarantine
from headrace.settings import Settings
from headrace.spark.columns import build_number
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KAFKA = ("topic", "partition", "offset", "timestamp")


@phase("write")
def stage_refused(
    spark: SparkSession, catalog: Catalog, settings: Settings, table: TableName, rows: DataFrame, *, build_id: int
) -> tuple[str, ...]:
    """Write refused rows (`row`, `reason` and, if known, their Kafka coordinates), and return the files."""
    open_quarantine(catalog, settings)

    def known(name: str, kind: str) -> Column:
        return F.col(name) if name in rows.columns else F.lit(None).cast(kind)

    shaped = rows.select(
        F.lit(str(table)).alias("stream"),
        known("kafka_topic", "string").alias("topic"),
        known("kafka_partition", "int").alias("partition"),
        known("kafka_offset", "bigint").alias("offset"),
        known("kafka_timestamp", "timestamp").alias("timestamp"),
        F.col("reason"),
        F.encode(F.col("row"), "UTF-8").alias("original_bytes"),
        build_number(build_id).alias("checkpoint_id"),
    )
    staged = stage_files(spark, load_java_table(spark, QUARANTINE), shaped.coalesce(1))
    return tuple(str(file.location()) for file in staged.files)


def stage_refused_rows(
    catalog: Catalog, settings: Settings, table: TableName, rows: pa.Table, *, build_id: int
) -> tuple[str, ...]:
    """Write a few refused rows without Spark, and return the files. The columns are those of `stage_refused`.

    `row` may be text or bytes.
    """
    quarantine = open_quarantine(catalog, settings)
    shaped = pa.table(
        {
            "stream": pa.repeat(pa.scalar(str(table)), rows.num_rows),
            **{name: rows[f"kafka_{name}"] for name in _KAFKA if f"kafka_{name}" in rows.column_names},
            "reason": rows["reason"],
            "original_bytes": rows["row"].cast(pa.binary()),
            "checkpoint_id": pa.repeat(pa.scalar(build_id, pa.int64()), rows.num_rows),
        }
    )
    return tuple(file.file_path for file in stage_rows(quarantine, [shaped]))


def flush_refused(catalog: Catalog, settings: Settings, table: TableName, entry: BuildLedger) -> None:
    """Update the quarantine to a table's ledger entry. Idempotent by table and build.

    The files in the entry are appended. A full refresh has checked all rows again, so the rows that earlier builds refused are
    deleted first.
    """
    is_full_refresh = entry.generation == entry.build_id and entry.build_id > 1
    if is_full_refresh and load_table(catalog, QUARANTINE) is not None:
        _delete_older(catalog, table, before=entry.build_id)
    if entry.quarantine_files:
        refused = Refused(entry.build_id, entry.quarantine_files)
        flush_quarantine(catalog, open_quarantine(catalog, settings), {str(table): refused})


def _delete_older(catalog: Catalog, table: TableName, *, before: int) -> None:
    older = f"stream = '{table}' AND checkpoint_id < {before}"

    def commit() -> bool:
        quarantine = catalog.load_table(str(QUARANTINE))
        if quarantine.scan(row_filter=older, selected_fields=("checkpoint_id",), limit=1).to_arrow().num_rows:
            quarantine.delete(older)
        return True

    commit_once(commit, find=lambda: None, where=str(QUARANTINE))
