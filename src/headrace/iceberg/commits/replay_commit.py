"""Commits a replay: files that go, files that come in their place, and what the replay did, in one step."""

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
    """Files that a replay would replace were replaced by others meanwhile, or the table was rolled back."""


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
    """Return the entry as it was committed.

    Idempotent by `new.replay_id`. Landing's entry is left alone, so that an application that lands the stream goes on. The
    table's replay must still be `planned`, the files that go must be there, and the table must not have been rolled back since:
    else a FilesMovedError is raised and nothing is changed.
    """

    def find() -> ReplayLedger | None:
        found = read_replay(catalog.load_table(str(name)))
        return found if found.replay_id == new.replay_id else None

    def commit() -> ReplayLedger:
        table = without_retries(load_java_table(spark, name))
        current = catalog.load_table(str(name))
        before = read_replay(current)
        if before.replay_id == new.replay_id:
            return before
        held = plan_files(table, snapshot_id=int(table.currentSnapshot().snapshotId())).tasks if files.removed else {}
        gone = [str(file.location()) for file in files.removed if str(file.location()) not in held]
        if gone or before.replay_id != planned.replay_id or read_ledger(current).rollbacks != rollbacks:
            raise FilesMovedError(
                "its files were written anew by another application while it was replayed",
                where=str(name),
                next_step="Nothing was changed. Run the same command again.",
            )
        transaction, made = table.newTransaction(), table.currentSnapshot()
        if files:
            made = replace_files(transaction, table, files, {KEY: new.replay_id})
        entry = replace(new, snapshot_id=int(made.snapshotId()), sequence_number=int(made.sequenceNumber()))
        transaction.updateProperties().set(KEY, entry.to_json()).commit()
        commit_as_planned(table, transaction)
        return entry

    return commit_once(commit, find=find, where=str(name))
