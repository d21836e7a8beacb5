"""Compaction: files are written anew, bigger and sorted, with the rows that they have and without those that are deleted.

Rows keep every column, so also the checkpoint or build that they came with: those who read the table see nothing new. The
table's properties, where the ledgers are, are not touched. Where a build or an erasure was faster, compaction gives way.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import BuildError
from headrace.iceberg.catalog.properties import CATALOG_NAME
from headrace.iceberg.commits.java_errors import is_conflict, is_moved
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
"""What the summary of a compaction's snapshot has: the id of the attempt."""

_TRIES = 6
_FIRST_WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Compaction:
    """How a table is compacted: sorted by `order`, to files of about `target_bytes`.

    `before_commit` is told the new files before any snapshot refers to them.
    """

    order: tuple[str, ...]
    target_bytes: int
    before_commit: Callable[[Sequence[str]], None] = lambda paths: None


def compact_group(
    spark: SparkSession, name: TableName, group: Group, planned: ScanFiles, *, at: Snapshot, how: Compaction
) -> bool:
    """Return whether the group's files were written anew; not if others have moved them, and then nothing has changed.

    `planned` are the scan tasks of the snapshot `at`. What is given up leaves its files behind, for orphans.py: a catalog may
    carry out a commit long after its answer was lost, and nobody can tell here that it never will.
    """
    table = load_java_table(spark, name)
    files = planned.among([file.path for file in group.files])
    staged = _stage(spark, table, files, group, how)
    attempt = str(uuid.uuid4())
    if staged.files:
        how.before_commit([str(file.location()) for file in staged.files])
    return _commit(spark, name, files, staged, group=group, at=at, attempt=attempt)


def partition_order(table: Table) -> tuple[str, ...]:
    """Return SQL expressions that sort rows by partition, as the table's partitioning has it now."""
    schema, found = table.schema(), []
    for field in table.spec().fields:
        column = ".".join(f"`{part}`" for part in (schema.find_column_name(field.source_id) or "").split("."))
        name, _, rest = str(field.transform).partition("[")
        if name == "identity":
            found.append(column)
        elif name in ("year", "month", "day", "hour"):
            found.append(f"{CATALOG_NAME}.system.{name}s({column})")
        elif name in ("bucket", "truncate"):
            found.append(f"{CATALOG_NAME}.system.{name}({rest.rstrip(']')}, {column})")
    return tuple(found)


def declared_order(table: Table) -> tuple[str, ...]:
    """Return the columns of the sort order that the table itself declares, as any engine can (WRITE ORDERED BY)."""
    schema = table.schema()
    fields = [field for field in table.sort_order().fields if str(field.transform) == "identity"]
    return tuple(schema.find_column_name(field.source_id) or "" for field in fields)


def _stage(spark: SparkSession, table: JavaObject, files: ScanFiles, group: Group, how: Compaction) -> StagedFiles:
    parts = max(1, round(group.bytes / how.target_bytes))
    with read_files(spark, table, files) as rows:
        plain = rows.drop(FILE)
        order: list[Column] = [F.expr(each) for each in how.order]
        spread = plain.repartitionByRange(parts, *order) if order else plain.repartition(parts)
        staged = stage_files(spark, table, spread.sortWithinPartitions(*order) if order else spread, is_sorted=True)
    most = sum(file.rows for file in group.files)
    least = most - sum(file.deleted for file in group.files)
    if not least <= staged.rows <= most:  # whatever happened, a table must not lose rows to its maintenance
        raise BuildError(
            f"compaction read {count_of(staged.rows, 'row')} where {least:,} to {most:,} are",
            where=str(table.name()),
            next_step="Nothing was changed. Please report this, with the table's metadata.",
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
    for number in range(_TRIES):
        table = load_java_table(spark, name)
        if number and _came_through(table, attempt):
            return True
        since = _validate_from(table, at.snapshot_id)
        if since is None:
            return False
        # Deletes of other engines that came since the snapshot was read must reach the new files, too.
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
            if is_moved(error):
                break  # by others, or by a try of this very attempt whose answer was lost
            if not is_conflict(error) and number == _TRIES - 1:
                raise
            time.sleep(_FIRST_WAIT_SECONDS * 2**number)
    return _came_through(load_java_table(spark, name), attempt)


def _validate_from(table: JavaObject, snapshot_id: int) -> int | None:
    """Return the snapshot after which no deletes may have come to the files, or None where that can't be told.

    Landing thins its history, so the way back to the snapshot that was read may be gone. A table without deletes needs none.
    """
    current = table.currentSnapshot()
    at = current
    while at is not None:
        if int(at.snapshotId()) == snapshot_id:
            return snapshot_id
        at = table.snapshot(at.parentId()) if at.parentId() is not None else None
    has_deletes = current is None or current.summary().get("total-delete-files") != "0"
    return None if has_deletes else int(current.snapshotId())


def _came_through(table: JavaObject, attempt: str) -> bool:
    snapshots = table.snapshots()
    return any(snapshots.get(index).summary().get(COMPACTION) == attempt for index in range(snapshots.size()))
