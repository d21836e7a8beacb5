"""Commits a build: files that go, files that come, and how far the inputs were read, in one step."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import Catalog

from headrace.iceberg.commits.build_attempt import compacted_error, find_build
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.history import RECENT, DatedSnapshot, snapshots_to_drop
from headrace.iceberg.commits.java_errors import is_moved
from headrace.iceberg.deletes.deleted_rows import deletes_of_one_file
from headrace.iceberg.files.spark_files import JavaObject, commit_as_planned, load_java_table
from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.iceberg.schema.rescaling import replace_columns
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FileChanges:
    """Data files that come, and scan tasks of those that go, which are of the snapshot `snapshot_id`."""

    added: Sequence[JavaObject] = ()
    removed: Sequence[JavaObject] = ()
    snapshot_id: int | None = None

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def commit_build(
    spark: SparkSession,
    catalog: Catalog,
    name: TableName,
    *,
    files: FileChanges,
    planned: BuildLedger,
    new: BuildLedger,
    replaced: tuple[Column, ...] = (),
    readers: Collection[int] = (),
) -> BuildLedger:
    """Return the entry as it was committed, with the snapshot that holds the build's rows.

    Idempotent by `new.writer`. The table's entry must still be `planned`: where another build has moved it, or the table was
    rolled back, a TakenOverError is raised and nothing is changed. Where files that the build replaces were compacted since it
    read them, a CompactedError is raised: it has to be planned again. Every build makes a snapshot, also one without files: a
    REST catalog refuses no commit to properties alone. `replaced` columns are replaced in the same commit (rescaling.py):
    `files` must be all that the table has then. `readers` are snapshots that other tables have read up to, which stay for a
    while (history.py).
    """

    def find() -> BuildLedger | None:
        return find_build(catalog.load_table(str(name)), planned=planned, new=new)

    def commit() -> BuildLedger:
        return _commit(spark, name, files=files, planned=planned, new=new, replaced=replaced, readers=readers)

    return commit_once(commit, find=find, where=str(name))


def append_files(spark: SparkSession, name: TableName, *, added: Sequence[JavaObject]) -> None:
    """Append files to a table that keeps no ledger of its own. Not idempotent: for rows that may be there twice."""
    append = load_java_table(spark, name).newAppend()
    for file in added:
        append.appendFile(file)
    append.commit()


class _MovedError(Exception):
    """The table's entry is no longer the one that the build was planned from."""


def _commit(
    spark: SparkSession,
    name: TableName,
    *,
    files: FileChanges,
    planned: BuildLedger,
    new: BuildLedger,
    replaced: tuple[Column, ...],
    readers: Collection[int],
) -> BuildLedger:
    table = load_java_table(spark, name)
    transaction = table.newTransaction()  # of the newest metadata, which may be newer than what was loaded
    text = transaction.table().properties().get(KEY)
    if (BuildLedger.from_json(text).writer if text else "") != planned.writer:
        raise _MovedError(f"{name} was built since")
    replace_columns(spark, table, replaced, transaction=transaction)
    try:
        entry = _change_rows(spark, transaction, files=files, new=new)
    except Py4JJavaError as error:
        raise _explain(error, name) from error
    properties = transaction.updateProperties()
    for key, value in entry.to_properties().items():
        properties.set(key, value)
    properties.commit()
    _drop_old_snapshots(transaction, table, readers)
    commit_as_planned(table, transaction)
    return entry


def _explain(error: Exception, name: TableName) -> Exception:
    """Return the error that says that files were compacted, where it is that one; any other as it is."""
    if not is_moved(error):
        return error
    return compacted_error(str(name))


def _change_rows(spark: SparkSession, transaction: JavaObject, *, files: FileChanges, new: BuildLedger) -> BuildLedger:
    update: Any
    if files.removed:
        update = transaction.newRowDelta()
        for task in files.removed:
            update.removeRows(task.file())
        for outdated in deletes_of_one_file(spark, files.removed):
            update.removeDeletes(outdated)
        for file in files.added:
            update.addRows(file)
        update.validateFromSnapshot(files.snapshot_id)
        update.validateDeletedFiles()
        update.validateNoConflictingDeleteFiles()
    else:
        update = transaction.newAppend()
        for file in files.added:
            update.appendFile(file)
    # The id of a snapshot is known when it is made, so the summary's entry names no snapshot and the properties' does.
    for key, value in new.to_properties().items():
        update.set(key, value)
    update.commit()
    made = transaction.table().currentSnapshot()
    return replace(new, snapshot_id=int(made.snapshotId()), sequence_number=int(made.sequenceNumber()))


def _drop_old_snapshots(transaction: JavaObject, table: JavaObject, readers: Collection[int]) -> None:
    """Leave old snapshots out of the history, as landing's commits do."""
    snapshots = table.snapshots()
    if snapshots.size() <= RECENT:
        return
    dated = [
        DatedSnapshot(int(each.snapshotId()), int(each.timestampMillis()))
        for each in (snapshots.get(index) for index in range(snapshots.size()))
    ]
    protected = {int(ref.snapshotId()) for ref in table.refs().values()}
    dropped = snapshots_to_drop(dated, protected=protected, readers=readers, now_ms=time.time_ns() // 1_000_000)
    if dropped:
        expire = transaction.expireSnapshots().cleanExpiredFiles(False)
        for snapshot_id in dropped:
            expire.expireSnapshotId(snapshot_id)
        expire.commit()
