"""Commits an erasure: files that go, files with the rest of their rows that come, and the ledger entry, in one step."""

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
    """Files that go and the files that come in their place."""

    removed: Sequence[JavaObject] = ()
    added: Sequence[JavaObject] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def commit_landed_erasure(
    spark: SparkSession, catalog: Catalog, name: TableName, *, files: Replaced, planned: Ledger, erased: bool = True
) -> Ledger:
    """Return the ledger entry of a raw table without the files' erased rows: nothing of it lands again.

    The entry has a new writer, so an application that still lands this stream can't commit files that are deleted after this;
    and where rows were `erased`, it counts one erasure more, so all that was made of the table is made anew. The table's
    entry must still be `planned`; where landing has moved it, a TakenOverError is raised and nothing is changed.
    """
    new = replace(planned, writer=str(uuid.uuid4()), erasures=planned.erasures + (1 if erased else 0))

    def find() -> Ledger | None:
        found = read_ledger(catalog.load_table(str(name)))
        if found.writer == new.writer:
            return found
        _check(found.writer, planned.writer, name)
        return None

    def commit() -> Ledger:
        table = without_retries(load_java_table(spark, name))
        transaction = table.newTransaction()
        text = transaction.table().properties().get(KEY)
        _check(Ledger.from_json(text).writer if text else "", planned.writer, name)
        change = replace_files if files.removed else _change_nothing
        made = change(transaction, table, files, {KEY: new.to_json()})
        entry = replace(new, snapshot_id=int(made.snapshotId()), sequence_number=int(made.sequenceNumber()))
        transaction.updateProperties().set(KEY, entry.to_json()).commit()
        commit_as_planned(table, transaction)
        return entry

    return commit_once(commit, find=find, where=str(name))


def commit_erasure(spark: SparkSession, catalog: Catalog, name: TableName, *, files: Replaced, erasure_id: str) -> Table:
    """Return a table of Headrace's own, which others may append to meanwhile, without the files' erased rows."""
    if not files.removed:
        return catalog.load_table(str(name))
    made: list[int] = []

    def find() -> Table | None:
        table = catalog.load_table(str(name))
        return table if made and table.snapshot_by_id(made[-1]) is not None else None

    def commit() -> Table:
        table = load_java_table(spark, name)
        transaction = table.newTransaction()
        made.append(int(replace_files(transaction, table, files, {_ERASURE: erasure_id}).snapshotId()))
        transaction.commitTransaction()
        return catalog.load_table(str(name))

    return commit_once(commit, find=find, where=str(name))


def without_retries(table: JavaObject) -> JavaObject:
    """Return the table, which no longer repeats a commit after a conflict: Iceberg would not look at the ledger again."""
    if table.properties().get(_RETRIES) != "0":
        table.updateProperties().set(_RETRIES, "0").commit()
        table.refresh()
    return table


def replace_files(transaction: JavaObject, table: JavaObject, files: Replaced, summary: dict[str, str]) -> JavaObject:
    """Return the snapshot that has the new files in the place of the old."""
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
    """Return a snapshot with the same files."""
    update = transaction.newAppend()
    for key, value in summary.items():
        update.set(key, value)
    update.commit()
    return transaction.table().currentSnapshot()


def _check(found: str, planned: str, name: TableName) -> None:
    if found != planned:
        raise TakenOverError(
            "rows were landed while a person was erased from it",
            where=str(name),
            next_step="Nothing was lost. Stop the application that lands it, then run the same command again.",
        )
