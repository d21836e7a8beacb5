"""Commit a small build without the JVM: its files and its ledger entry, in one PyIceberg transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement, ValidatableTableRequirement

from headrace.iceberg.commits.build_attempt import find_build
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.commits.row_delta_conflicts import check_conflicts
from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.iceberg.pyiceberg_private.row_delta_snapshot import RowDeltaSnapshot
from headrace.iceberg.pyiceberg_private.transactions import TableTransaction
from headrace.spec.model.pipeline import TableName


def commit_small_build(
    catalog: Catalog,
    name: TableName,
    *,
    delta: RowDelta,
    planned: BuildLedger,
    new: BuildLedger,
    readers: Collection[int] = (),
) -> BuildLedger:
    """Return the committed entry, with the snapshot that holds the build's rows.

    `readers` are snapshots that other tables have read up to. The guarantees are those of `commit_build`. Idempotent by
    `new.writer`. The table's entry must still be `planned`: if another build has changed it, or the table was rolled back, a
    TakenOverError is raised. If files that the build changes were compacted since it read them, a CompactedError is raised.
    Neither changes the table. A build that changes no rows creates a snapshot only if the catalog has no other way to detect a
    concurrent build (`_checks_entries`).
    """

    def commit() -> BuildLedger:
        table = catalog.load_table(str(name))
        return find_build(table, planned=planned, new=new) or _commit(catalog, table, delta=delta, new=new, readers=readers)

    # Every attempt searches for the entry first, so `find` has nothing to do after a lost response.
    return commit_once(commit, find=lambda: None, where=str(name))


class AssertBuild(ValidatableTableRequirement):
    """The table's entry must be the one that the commit was checked against."""

    type: Literal["assert-headrace-build"] = "assert-headrace-build"
    entry: str | None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or base_metadata.properties.get(KEY) != self.entry:
            raise CommitFailedException("Requirement failed: the table was built concurrently")


def _commit(catalog: Catalog, table: Table, *, delta: RowDelta, new: BuildLedger, readers: Collection[int]) -> BuildLedger:
    check_conflicts(table, delta)
    transaction = TableTransaction(table)
    entry = new
    if delta or not _checks_entries(catalog):
        snapshot = RowDeltaSnapshot(transaction, delta, io=table.io)
        entry = replace(new, snapshot_id=snapshot.snapshot_id, sequence_number=table.metadata.next_sequence_number())
        snapshot.snapshot_properties = entry.to_properties()
        snapshot.commit()
    transaction.set_properties(entry.to_properties())
    transaction.commit_once(catalog, *_requirements(catalog, table), readers=readers)
    return entry


def _checks_entries(catalog: Catalog) -> bool:
    """Return whether a commit can require that the table's entry is unchanged.

    PyIceberg itself checks the requirements of commits to SQL, Hive and Glue catalogs. A REST catalog's server knows only the
    requirements of the specification, none of which concerns properties. There each build creates a snapshot, with or without
    rows, and the commit requires the previous one: of two concurrent builds only one can change the entry.
    """
    return isinstance(catalog, MetastoreCatalog)


def _requirements(catalog: Catalog, table: Table) -> list[TableRequirement]:
    """Return the requirements that the catalog checks when it commits."""
    current = table.current_snapshot()
    requirements: list[TableRequirement] = [
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=current.snapshot_id if current else None)  # type: ignore[call-arg]
    ]
    if _checks_entries(catalog):
        requirements.append(AssertBuild(entry=table.properties.get(KEY)))  # type: ignore[arg-type]
    return requirements
