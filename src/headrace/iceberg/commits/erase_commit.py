"""Commit an erasure: removed files, files with their remaining rows, and the ledger entry, in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import TakenOverError
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.files.spark_files import JavaObject, commit_as_planned, load_java_table
from headrace.iceberg.ledgers.landing import KEY, Ledger, read_ledger
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETRIES = "commit.retry.num-retries"
_ERASURE = "headrace.operations.erase"


@dataclass(frozen=True)
class Replaced:
    """Removed files and the files that replace them."""

    removed: Sequence[JavaObject] = ()
    added: Sequence[JavaObject] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def commit_landed_erasure(
    spark: SparkSession, catalog: Catalog, name: TableName, *, files: Replaced, planned: Ledger, erased: bool = True
) -> Ledger:
    """Replace files of a raw table, and return the new ledger entry. Its offsets stay, so erased rows are not landed again.

    The entry has a new writer, so an application that still lands this stream can't commit files that are deleted after this.
    If rows were `erased`, its erasure count is one higher, so all downstream tables are rebuilt. The table's entry must still
    be `planned`; if landing has changed it, a TakenOverError is raised and nothing is changed.
    """
    new = replace(planned, writer=str(uuid.uuid4()), erasures=planned.erasures + (1 if erased else 0))

    def find() -> Ledger | None:
        entry = read_ledger(catalog.load_table(str(name)))
        if entry.writer == new.writer:
            return entry
        _check_writer(entry.writer, planned.writer, name)
        return None

    def commit() -> Ledger:
        table = without_retries(load_java_table(spark, name))
        transaction = table.newTransaction()
        text = transaction.table().properties().get(KEY)
        _check_writer(Ledger.from_json(text).writer if text else "", planned.writer, name)
        change = replace_files if files.removed else _change_nothing
        snapshot = change(transaction, table, files, {KEY: new.to_json()})
        entry = replace(new, snapshot_id=int(snapshot.snapshotId()), sequence_number=int(snapshot.sequenceNumber()))
        transaction.updateProperties().set(KEY, entry.to_json()).commit()
        commit_as_planned(table, transaction)
        return entry

    return commit_once(commit, find=find, where=str(name))


def commit_erasure(spark: SparkSession, catalog: Catalog, name: TableName, *, files: Replaced, erasure_id: str) -> Table:
    """Replace files of a metadata table, which other applications may append to meanwhile, and return the table."""
    if not files.removed:
        return catalog.load_table(str(name))
    snapshot_ids: list[int] = []

    def find() -> Table | None:
        table = catalog.load_table(str(name))
        return table if snapshot_ids and table.snapshot_by_id(snapshot_ids[-1]) is not None else None

    def commit() -> Table:
        table = load_java_table(spark, name)
        transaction = table.newTransaction()
        snapshot_ids.append(int(replace_files(transaction, table, files, {_ERASURE: erasure_id}).snapshotId()))
        transaction.commitTransaction()
        return catalog.load_table(str(name))

    return commit_once(commit, find=find, where=str(name))


def without_retries(table: JavaObject) -> JavaObject:
    """Return the table with Iceberg's commit retries turned off: they would not check the ledger again."""
    if table.properties().get(_RETRIES) != "0":
        table.updateProperties().set(_RETRIES, "0").commit()
        table.refresh()
    return table


def replace_files(transaction: JavaObject, table: JavaObject, files: Replaced, summary: dict[str, str]) -> JavaObject:
    """Stage a snapshot that replaces the removed files with the added ones, and return it."""
    update = transaction.newOverwrite()
    for file in files.removed:
        update.deleteFile(file)
    for file in files.added:
        update.addFile(file)
    update.validateFromSnapshot(table.currentSnapshot().snapshotId())
    update.validateNoConflictingDeletes()
    for key, value in summary.items():
        update.set(key, value)
    update.commit()
    return transaction.table().currentSnapshot()


def _change_nothing(transaction: JavaObject, table: JavaObject, files: Replaced, summary: dict[str, str]) -> JavaObject:
    """Stage a snapshot with the same files, and return it."""
    update = transaction.newAppend()
    for key, value in summary.items():
        update.set(key, value)
    update.commit()
    return transaction.table().currentSnapshot()


def _check_writer(current: str, planned: str, name: TableName) -> None:
    if current != planned:
        raise TakenOverError(
            "another application landed rows during the erasure",
            where=str(name),
            next_step="Nothing was lost. Stop the application that lands this table, then run the same command again.",
        )
