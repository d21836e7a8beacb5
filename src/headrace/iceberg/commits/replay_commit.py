"""Commit a replay: removed files, the files that replace them, and the replay's ledger entry, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog

from headrace.errors import TakenOverError
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.erase_commit import Replaced, replace_files, without_retries
from headrace.iceberg.files.spark_files import commit_as_planned, load_java_table, plan_files
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.iceberg.ledgers.replay import KEY, ReplayLedger, read_replay
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FilesMovedError(TakenOverError):
    """Another application replaced the files that a replay would replace, or the table was rolled back."""


def commit_replay(
    spark: SparkSession,
    catalog: Catalog,
    name: TableName,
    *,
    files: Replaced,
    planned: ReplayLedger,
    new: ReplayLedger,
    rollbacks: int,
) -> ReplayLedger:
    """Return the committed entry.

    Idempotent by `new.replay_id`. Landing's entry stays unchanged, so that an application that lands the stream continues. The
    table's replay entry must still be `planned`, the removed files must be live, and the table must not have been rolled back:
    otherwise a FilesMovedError is raised and nothing is changed.
    """

    def find() -> ReplayLedger | None:
        entry = read_replay(catalog.load_table(str(name)))
        return entry if entry.replay_id == new.replay_id else None

    def commit() -> ReplayLedger:
        table = without_retries(load_java_table(spark, name))
        current = catalog.load_table(str(name))
        before = read_replay(current)
        if before.replay_id == new.replay_id:
            return before
        live = plan_files(table, snapshot_id=int(table.currentSnapshot().snapshotId())).tasks if files.removed else {}
        gone = [str(file.location()) for file in files.removed if str(file.location()) not in live]
        if gone or before.replay_id != planned.replay_id or read_ledger(current).rollbacks != rollbacks:
            raise FilesMovedError(
                "another application rewrote or rolled back the table during the replay",
                where=str(name),
                next_step="Nothing was changed. Run the same command again.",
            )
        transaction, snapshot = table.newTransaction(), table.currentSnapshot()
        if files:
            snapshot = replace_files(transaction, table, files, {KEY: new.replay_id})
        entry = replace(new, snapshot_id=int(snapshot.snapshotId()), sequence_number=int(snapshot.sequenceNumber()))
        transaction.updateProperties().set(KEY, entry.to_json()).commit()
        commit_as_planned(table, transaction)
        return entry

    return commit_once(commit, find=find, where=str(name))
