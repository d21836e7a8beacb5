"""Update the quarantine after a replay: recovered rows leave it, other rows get their new reason.

As in landing, the commit of the raw table is authoritative: its entry names the files of the rows that the quarantine must
hold. They are written right after that commit. If the application crashes in between, the next run writes them first.
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
    """Return a stream's rejected rows up to a checkpoint and within a window."""
    rows = quarantine.scan(row_filter=_rows_of(label, scope)).to_arrow()
    return rows.cast(schema_to_pyarrow(quarantine.schema()))


def write_refused(quarantine: Table, rows: pa.Table, *, folder: str, name: str) -> tuple[str, ...]:
    """Write the rows to files and return their paths. They are unreferenced until a ledger entry names them."""
    form, storage = TableFormat(quarantine.schema(), quarantine.spec()), Storage.of(quarantine.io.properties)
    files = TableFiles(form, folder=folder, name=name, storage=storage)
    if rows.num_rows:
        files.write(rows)
    return tuple(file.file_path for file in files.close())


def flush_replayed(catalog: Catalog, quarantine: Table, label: str, entry: ReplayLedger) -> Table:
    """Replace the quarantine's rows as a replay's entry says, and return the table. Idempotent by stream and replay.

    Afterwards the entry's files are deleted: their rows are in the quarantine's own files.
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
            warnings.simplefilter("ignore", UserWarning)  # PyIceberg warns if there are no rows to replace
            transaction.overwrite(pa.concat_tables([schema.empty_table(), *parts]), overwrite_filter=_rows_of(label, scope))
            transaction.set_properties({_PREFIX + label: entry.replay_id})
        return table

    flushed = commit_once(commit, find=lambda: None, where=str(QUARANTINE))
    for path in scope.files:
        delete_file(path, storage=Storage.of(quarantine.io.properties))
    return flushed


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
