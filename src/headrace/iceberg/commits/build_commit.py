"""Commit a build: removed files, added files and the ledger entry, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyiceberg.catalog import Catalog

from headrace.iceberg.commits.build_attempt import compacted_error, find_build
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.history import RECENT, DatedSnapshot, retention_of, snapshots_to_drop
from headrace.iceberg.commits.java_errors import is_validation_error
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
    """Added data files, and scan tasks of the removed ones, planned from the snapshot `snapshot_id`."""

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
    """Return the committed entry, with the snapshot that holds the build's rows.

    Idempotent by `new.writer`. The table's entry must still be `planned`: if another build has changed it, or the table was
    rolled back, a TakenOverError is raised and nothing is changed. If files that the build replaces were compacted since it
    read them, a CompactedError is raised: plan the build again. Every build creates a snapshot, also one without files: a REST
    catalog detects no conflict between commits of properties alone. `replaced` columns are replaced in the same commit
    (rescaling.py): `files` must then be all files of the table. `readers` are snapshots that other tables have read up to,
    which are retained for a while (history.py).
    """

    def find() -> BuildLedger | None:
        return find_build(catalog.load_table(str(name)), planned=planned, new=new)

    def commit() -> BuildLedger:
        return _commit(spark, name, files=files, planned=planned, new=new, replaced=replaced, readers=readers)

    return commit_once(commit, find=find, where=str(name))


def append_files(spark: SparkSession, name: TableName, *, added: Sequence[JavaObject]) -> None:
    """Append files to a table without a ledger. Not idempotent: only for rows that may be duplicated."""
    append = load_java_table(spark, name).newAppend()
    for file in added:
        append.appendFile(file)
    append.commit()


class _MovedError(Exception):
    """The table's entry has changed since the build was planned."""


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
    transaction = table.newTransaction()  # on the newest metadata, which may be newer than the loaded one
    text = transaction.table().properties().get(KEY)
    if (BuildLedger.from_json(text).writer if text else "") != planned.writer:
        raise _MovedError(f"another build of {name} was committed first")
    replace_columns(spark, table, replaced, transaction=transaction)
    try:
        entry = _change_rows(spark, transaction, files=files, new=new)
    except Py4JJavaError as error:
        raise _translate(error, name) from error
    properties = transaction.updateProperties()
    for key, value in entry.to_properties().items():
        properties.set(key, value)
    properties.commit()
    _drop_old_snapshots(transaction, table, readers)
    commit_as_planned(table, transaction)
    return entry


def _translate(error: Exception, name: TableName) -> Exception:
    """Return a CompactedError for a validation error of Iceberg; return other errors unchanged."""
    if not is_validation_error(error):
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
    # The snapshot's id is known only after the commit, so the entry in the summary lacks it and the one in the properties has
    # it.
    for key, value in new.to_properties().items():
        update.set(key, value)
    update.commit()
    snapshot = transaction.table().currentSnapshot()
    return replace(new, snapshot_id=int(snapshot.snapshotId()), sequence_number=int(snapshot.sequenceNumber()))


def _drop_old_snapshots(transaction: JavaObject, table: JavaObject, readers: Collection[int]) -> None:
    """Remove old snapshots from the history, as landing's commits do."""
    snapshots = table.snapshots()
    if snapshots.size() <= RECENT:
        return
    dated = [
        DatedSnapshot(int(snapshot.snapshotId()), int(snapshot.timestampMillis()))
        for snapshot in (snapshots.get(index) for index in range(snapshots.size()))
    ]
    protected = {int(ref.snapshotId()) for ref in table.refs().values()}
    dropped = snapshots_to_drop(
        dated,
        protected=protected,
        readers=readers,
        now_ms=time.time_ns() // 1_000_000,
        snapshots_for_ms=retention_of(table.properties()),
    )
    if dropped:
        expire = transaction.expireSnapshots().cleanExpiredFiles(False)
        for snapshot_id in dropped:
            expire.expireSnapshotId(snapshot_id)
        expire.commit()
