"""Compaction: rewrite files as larger, sorted files without their deleted rows.

Rows keep every column, including the checkpoint or build that they came with, so downstream tables see no change. The table's
properties, with the ledgers, stay unchanged. If a build or an erasure commits first, the compaction is dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import functions as F  # noqa: N812

from headrace.backoff import COMPACTIONS
from headrace.errors import BuildError
from headrace.iceberg.catalog.properties import CATALOG_NAME
from headrace.iceberg.commits.java_errors import is_conflict, is_validation_error
from headrace.iceberg.deletes.deleted_rows import deletes_of_one_file
from headrace.iceberg.files.spark_files import (
    FILE,
    JavaObject,
    ScanFiles,
    StagedFiles,
    load_java_table,
    read_files,
    stage_files,
)
from headrace.iceberg.maintenance.groups import Group
from headrace.plurals import count_of
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

COMPACTION = "headrace.compaction"
"""The summary property of a compaction's snapshot: the id of the attempt."""


@dataclass(frozen=True)
class Compaction:
    """The options of a compaction: sort by `order`, write files of about `target_bytes`.

    `before_commit` is called with the new files before they are committed.
    """

    order: tuple[str, ...]
    target_bytes: int
    before_commit: Callable[[Sequence[str]], None] = lambda paths: None


def compact_group(
    spark: SparkSession, name: TableName, group: Group, planned: ScanFiles, *, at: Snapshot, how: Compaction
) -> bool:
    """Rewrite the group's files. Return False, with the table unchanged, if another commit replaced them first.

    `planned` are the scan tasks of the snapshot `at`. A failed attempt leaves its files to orphans.py: a catalog may execute a
    commit long after its response was lost, so it is not safe to delete them here.
    """
    table = load_java_table(spark, name)
    files = planned.among([file.path for file in group.files])
    staged = _stage(spark, table, files, group, how)
    attempt = str(uuid.uuid4())
    if staged.files:
        how.before_commit([str(file.location()) for file in staged.files])
    return _commit(spark, name, files, staged, group=group, at=at, attempt=attempt)


def partition_order(table: Table) -> tuple[str, ...]:
    """Return SQL expressions that sort rows by the table's current partition spec."""
    schema, order = table.schema(), []
    for field in table.spec().fields:
        column = ".".join(f"`{part}`" for part in (schema.find_column_name(field.source_id) or "").split("."))
        name, _, rest = str(field.transform).partition("[")
        if name == "identity":
            order.append(column)
        elif name in ("year", "month", "day", "hour"):
            order.append(f"{CATALOG_NAME}.system.{name}s({column})")
        elif name in ("bucket", "truncate"):
            order.append(f"{CATALOG_NAME}.system.{name}({rest.rstrip(']')}, {column})")
    return tuple(order)


def declared_order(table: Table) -> tuple[str, ...]:
    """Return the columns of the table's declared sort order, which any engine can set (WRITE ORDERED BY)."""
    schema = table.schema()
    fields = [field for field in table.sort_order().fields if str(field.transform) == "identity"]
    return tuple(schema.find_column_name(field.source_id) or "" for field in fields)


def _stage(spark: SparkSession, table: JavaObject, files: ScanFiles, group: Group, how: Compaction) -> StagedFiles:
    parts = max(1, round(group.bytes / how.target_bytes))
    with read_files(spark, table, files) as rows:
        plain = rows.drop(FILE)
        order: list[Column] = [F.expr(expression) for expression in how.order]
        spread = plain.repartitionByRange(parts, *order) if order else plain.repartition(parts)
        staged = stage_files(spark, table, spread.sortWithinPartitions(*order) if order else spread, is_sorted=True)
    most = sum(file.rows for file in group.files)
    least = most - sum(file.deleted for file in group.files)
    if not least <= staged.rows <= most:  # a last check: maintenance must never lose rows
        raise BuildError(
            f"compaction read {count_of(staged.rows, 'row')} of files that hold {least:,} to {most:,}",
            where=str(table.name()),
            next_step="Nothing was changed. Please report this bug, with the table's metadata.",
        )
    return staged


def _commit(
    spark: SparkSession,
    name: TableName,
    files: ScanFiles,
    staged: StagedFiles,
    *,
    group: Group,
    at: Snapshot,
    attempt: str,
) -> bool:
    failures = count()

    def try_commit() -> bool:
        table = load_java_table(spark, name)
        if next(failures) and _is_committed(table, attempt):
            return True
        since = _validate_from(table, at.snapshot_id)
        if since is None:
            return False
        # Deletes that other engines committed since the snapshot must apply to the new files, too.
        update = table.newRewrite().validateFromSnapshot(since).dataSequenceNumber(at.sequence_number or 0)
        for file in group.files:
            task = files.tasks[file.path]
            update.deleteFile(task.file())
            for outdated in deletes_of_one_file(spark, [task]) if file.deleted else ():
                update.deleteFile(outdated)
        for new in staged.files:
            update.addFile(new)
        update.set(COMPACTION, attempt)
        try:
            update.commit()
            return True
        except Py4JJavaError as error:
            if is_validation_error(error):
                # Another commit, or an earlier try of this attempt whose response was lost, replaced the files.
                return _is_committed(load_java_table(spark, name), attempt)
            raise _RefusedCommitError from error

    try:
        return COMPACTIONS.retry(try_commit, on=lambda error: isinstance(error, _RefusedCommitError))
    except _RefusedCommitError as refused:
        if isinstance(refused.__cause__, Py4JJavaError) and not is_conflict(refused.__cause__):
            raise refused.__cause__ from None
        return _is_committed(load_java_table(spark, name), attempt)


class _RefusedCommitError(Exception):
    """A commit failed, with its cause. Errors while the table is loaded are not retried."""


def _validate_from(table: JavaObject, snapshot_id: int) -> int | None:
    """Return the snapshot from which Iceberg checks for new deletes, or None if it can't check.

    Landing expires snapshots, so the snapshot that was read may no longer be an ancestor. A table without deletes needs no
    check.
    """
    current = table.currentSnapshot()
    at = current
    while at is not None:
        if int(at.snapshotId()) == snapshot_id:
            return snapshot_id
        at = table.snapshot(at.parentId()) if at.parentId() is not None else None
    has_deletes = current is None or current.summary().get("total-delete-files") != "0"
    return None if has_deletes else int(current.snapshotId())


def _is_committed(table: JavaObject, attempt: str) -> bool:
    snapshots = table.snapshots()
    return any(snapshots.get(index).summary().get(COMPACTION) == attempt for index in range(snapshots.size()))
