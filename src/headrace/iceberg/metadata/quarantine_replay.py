"""The quarantine follows a replay: rows that are in the raw table now leave it, others get their new reason.

As in landing, the commit of the raw table is the truth: its entry names the rows that the quarantine shall have, and they are
put there right after it, or, if the application dies in between, by the next one before it does anything else.
"""

from __future__ import annotations

import functools
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.files.storage import Storage, delete_file
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.replay import ReplayLedger, Settlement
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.iceberg.rows.filters import column_between, column_is, column_is_before, column_is_from

_PREFIX = "headrace.replayed."


def read_refused(quarantine: Table, label: str, scope: Settlement) -> pa.Table:
    """Return the refused rows of a stream up to a checkpoint and within a window."""
    rows = quarantine.scan(row_filter=_rows_of(label, scope)).to_arrow()
    return rows.cast(schema_to_pyarrow(quarantine.schema()))


def write_refused(quarantine: Table, rows: pa.Table, *, folder: str, name: str) -> tuple[str, ...]:
    """Return files that hold the rows; nothing refers to them until an entry does."""
    form, storage = TableFormat(quarantine.schema(), quarantine.spec()), Storage.of(quarantine.io.properties)
    files = TableFiles(form, folder=folder, name=name, storage=storage)
    if rows.num_rows:
        files.write(rows)
    return tuple(file.file_path for file in files.close())


def flush_replayed(catalog: Catalog, quarantine: Table, label: str, entry: ReplayLedger) -> Table:
    """Return the quarantine as a replay's entry says that it shall be. Idempotent by stream and replay.

    The files that the entry names are deleted then: their rows are in files of the quarantine's own.
    """
    scope = entry.settlement
    if scope is None or quarantine.properties.get(_PREFIX + label) == entry.replay_id:
        return quarantine

    def commit() -> Table:
        table = catalog.load_table(str(QUARANTINE))
        if table.properties.get(_PREFIX + label) == entry.replay_id:
            return table
        schema = schema_to_pyarrow(table.schema())
        parts = [_read(table, path).cast(schema) for path in scope.files]
        with warnings.catch_warnings(), table.transaction() as transaction:
            warnings.simplefilter("ignore", UserWarning)  # PyIceberg's, where no row goes
            transaction.overwrite(pa.concat_tables([schema.empty_table(), *parts]), overwrite_filter=_rows_of(label, scope))
            transaction.set_properties({_PREFIX + label: entry.replay_id})
        return table

    settled = commit_once(commit, find=lambda: None, where=str(QUARANTINE))
    for path in scope.files:
        delete_file(path, storage=Storage.of(quarantine.io.properties))
    return settled


def _rows_of(label: str, scope: Settlement) -> BooleanExpression:
    conditions = [column_is("stream", label), column_between("checkpoint_id", scope.first_checkpoint, scope.checkpoint_id)]
    if scope.window.since is not None:
        conditions.append(column_is_from("timestamp", scope.window.since))
    if scope.window.until is not None:
        conditions.append(column_is_before("timestamp", scope.window.until))
    return functools.reduce(And, conditions)


def _read(table: Table, path: str) -> pa.Table:
    with table.io.new_input(path).open() as stream:
        return pq.read_table(stream)
