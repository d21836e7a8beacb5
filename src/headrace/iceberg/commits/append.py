"""Appends ready data files to a table, once, whatever happens to the catalog's answers."""

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

    Idempotent by `new.writer`. The table's ledger must still be `planned`: if another application has moved it, a
    TakenOverError is raised and nothing is changed; so it is if the table was rolled back. A conflict with someone who left
    the ledger alone (compaction) is tried again.
    """

    def is_there(table: Table) -> bool:
        found = read_ledger(table)
        if found.writer == new.writer:
            return True
        if found.writer != planned.writer:
            raise TakenOverError(
                f"another application has landed checkpoint {found.checkpoint_id} since this one planned its batch",
                where=".".join(table.name()),
                next_step="Nothing was lost and nothing was written twice. Keep one of the two applications.",
            )
        if found.snapshot_id != planned.snapshot_id:
            raise TakenOverError(
                "the table was rolled back since this application planned its batch",
                where=".".join(table.name()),
                next_step="Nothing was committed. Start again: what the table no longer holds is landed again.",
            )
        return False

    return append_once(
        catalog,
        table,
        files=files,
        entry=lambda snapshot_id, sequence: {KEY: replace(new, snapshot_id=snapshot_id, sequence_number=sequence).to_json()},
        is_there=is_there,
    )


def append_once(
    catalog: Catalog,
    table: Table,
    *,
    files: Sequence[DataFile],
    entry: Callable[[int, int], Mapping[str, str]],
    is_there: Callable[[Table], bool],
) -> Table:
    """Return the table with `files` and the properties `entry(snapshot id, sequence number)` in one snapshot.

    After a conflict or a lost answer the table is read again, and `is_there` says whether the commit came through; only if it
    did not is it tried again. `is_there` may raise to give up.
    """
    held = table

    def find() -> Table | None:
        nonlocal held
        held = catalog.load_table(table.name())
        return held if is_there(held) else None

    return commit_once(lambda: _commit(catalog, held, files=files, entry=entry), find=find, where=".".join(table.name()))


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
