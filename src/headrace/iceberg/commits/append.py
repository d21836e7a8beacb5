"""Append data files to a table exactly once, also after conflicts and lost responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from headrace.errors import TakenOverError
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.ledgers.landing import KEY, Ledger, read_ledger
from headrace.iceberg.pyiceberg_private.row_delta_snapshot import RowDeltaSnapshot
from headrace.iceberg.pyiceberg_private.transactions import TableTransaction


def append_checkpoint(catalog: Catalog, table: Table, *, files: Sequence[DataFile], planned: Ledger, new: Ledger) -> Table:
    """Return the table with `files` and the ledger entry `new` in one snapshot.

    Idempotent by `new.writer`. The table's ledger must still be `planned`: if another application has changed it, or the table
    was rolled back, a TakenOverError is raised and nothing is changed. A conflict with a commit that left the ledger unchanged
    (compaction) is retried.
    """

    def is_committed(table: Table) -> bool:
        entry = read_ledger(table)
        if entry.writer == new.writer:
            return True
        if entry.writer != planned.writer:
            raise TakenOverError(
                f"another application has landed checkpoint {entry.checkpoint_id} since this one planned its batch",
                where=".".join(table.name()),
                next_step="Nothing was lost or written twice. Stop one of the two applications.",
            )
        if entry.snapshot_id != planned.snapshot_id:
            raise TakenOverError(
                "the table was rolled back since this application planned its batch",
                where=".".join(table.name()),
                next_step="Nothing was committed. Restart the application: it lands the removed rows again.",
            )
        return False

    return append_once(
        catalog,
        table,
        files=files,
        entry=lambda snapshot_id, sequence: {KEY: replace(new, snapshot_id=snapshot_id, sequence_number=sequence).to_json()},
        is_committed=is_committed,
    )


def append_once(
    catalog: Catalog,
    table: Table,
    *,
    files: Sequence[DataFile],
    entry: Callable[[int, int], Mapping[str, str]],
    is_committed: Callable[[Table], bool],
) -> Table:
    """Return the table with `files` and the properties `entry(snapshot id, sequence number)` in one snapshot.

    After a conflict or a lost response the table is loaded again, and the commit is retried only if `is_committed` returns
    False. `is_committed` may raise to give up.
    """
    current = table

    def find() -> Table | None:
        nonlocal current
        current = catalog.load_table(table.name())
        return current if is_committed(current) else None

    return commit_once(lambda: _commit(catalog, current, files=files, entry=entry), find=find, where=".".join(table.name()))


def _commit(
    catalog: Catalog, table: Table, *, files: Sequence[DataFile], entry: Callable[[int, int], Mapping[str, str]]
) -> Table:
    transaction = TableTransaction(table)
    snapshot = RowDeltaSnapshot(transaction, RowDelta(added=files), io=table.io)
    properties = dict(entry(snapshot.snapshot_id, table.metadata.next_sequence_number()))
    snapshot.snapshot_properties = properties
    snapshot.commit()
    transaction.set_properties(properties)
    return transaction.commit_once(catalog)
