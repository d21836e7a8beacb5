"""Fetch few rows of tables as Arrow through file indexes, at a given state of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.build.inputs import is_raw, position_column
from headrace.build.lake import Lake
from headrace.build.planned_inputs import NotLocalError, TooManyRowsError
from headrace.build.removed import DELETED, GENERATION, TRUNCATES, removed_name
from headrace.errors import BuildError
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.files.write import format_of
from headrace.iceberg.ledgers.build import InputState
from headrace.iceberg.rows.row_index import Match
from headrace.iceberg.rows.row_store import FILE, POSITION, Ranges, TooLargeError, WorkingSet
from headrace.iceberg.schema.columns import arrow_schema
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyiceberg.table import Table

MOST_ROWS = 100_000
"""The maximum number of rows that one read of a small build returns."""

MOST_BYTES = 64 * 1024 * 1024
"""The maximum number of Arrow bytes that all reads of a small build return. Two builds run at a time in a heap of 1 GB, and
rows that Spark sorts and joins take several times as much. A live run that starts cold gathers some ten thousand wide rows:
with a limit of 8 MB such builds were repeated with scans, ten times as slow, and never caught up."""


@dataclass(frozen=True)
class LocalTables:
    """The tables of a lake, for one build. A read raises a NotLocalError if its rows don't fit into memory."""

    lake: Lake
    _read_bytes: list[int] = field(default_factory=list)

    @cached_property
    def _working_set(self) -> WorkingSet:
        return self.lake.store.working_set()

    def fetch(
        self,
        name: TableName,
        state: InputState,
        *,
        match: Sequence[pa.Table] | None = None,
        between: Ranges | None = None,
        near: pa.Table | None = None,
        columns: tuple[Column, ...] | None = None,
    ) -> pa.Table:
        """Return rows of a table at a state, with the lake's columns or only `columns`.

        With `match`, only rows whose columns equal a row of any of these tables; with `between`, only rows within the ranges.
        All wanted rows must have one of the values of `near`: files that can't hold them are pruned.
        """
        columns = self.lake.columns[name] if columns is None else columns
        table = load_table(self.lake.catalog, name)
        if table is None or state.snapshot_id is None or match == []:
            return self._fit(None, columns)
        if match is None and between is None and state.rows > MOST_ROWS:
            raise NotLocalError(f"all {state.rows:,} rows of {name} are needed")
        return self._fit(self._read(table, state.snapshot_id, columns, match=match, between=between, near=near), columns)

    def entered(self, name: TableName, *, since: InputState, until: InputState) -> pa.Table:
        """Return the rows that were added to a table between two states and still exist."""
        position = position_column(name, self.lake.pipeline)
        return self.fetch(name, until, between={position: [(since.position + 1, until.position)]})

    def before(
        self,
        name: TableName,
        *,
        since: InputState,
        until: InputState,
        match: Sequence[pa.Table] | None,
        near: pa.Table | None = None,
    ) -> pa.Table:
        """Return the rows that exist at both `since` and `until`."""
        position = position_column(name, self.lake.pipeline)
        return self.fetch(name, until, match=match, between={position: [(0, since.position)]}, near=near)

    def past(
        self,
        name: TableName,
        *,
        since: InputState,
        until: InputState,
        match: Sequence[pa.Table] | None,
        near: pa.Table | None = None,
    ) -> pa.Table:
        """Return rows of a table at `since`. Raw tables are append-only and expire snapshots, so filter their current rows."""
        if is_raw(name, self.lake.pipeline):
            return self.before(name, since=since, until=until, match=match, near=near)
        return self.fetch(name, since, match=match, near=near)

    def left(self, name: TableName, *, since: InputState, until: InputState) -> pa.Table | None:
        """Return the rows that builds removed from a table between two states, or None if there can be none."""
        if is_raw(name, self.lake.pipeline) or (until.removed_in is not None and until.removed_in <= since.position):
            return None
        columns = self.lake.columns[name]
        rows = self.recorded(
            name, columns, generation=until.generation, between={BUILD_ID: [(since.position + 1, until.position)]}
        )
        if rows is None or (until.removed_in is None and not rows.num_rows):
            return None
        return rows.filter(pc.invert(pc.fill_null(rows[TRUNCATES], False))).select([column.name for column in columns])

    def recorded(
        self,
        name: TableName,
        columns: tuple[Column, ...],
        *,
        generation: int,
        match: Sequence[pa.Table] | None = None,
        between: Ranges | None = None,
    ) -> pa.Table | None:
        """Return the removed rows that builds of one generation recorded, with `_tombstone` and `_truncates`."""
        table = load_table(self.lake.catalog, removed_name(name))
        snapshot = table.current_snapshot() if table else None
        if table is None or snapshot is None:
            return None
        ranges = {**(between or {}), GENERATION: [(generation, generation)]}
        also = (DELETED, TRUNCATES)
        rows = self._read(table, snapshot.snapshot_id, columns, match=match, between=ranges, also=also)
        return self._fit(rows, columns, also)

    def files(self, table: Table) -> tuple[LiveFile, ...]:
        """Return the files of a table's current snapshot."""
        with _local_only():
            return self.lake.files.of(table, None)

    def placed(
        self,
        table: Table,
        snapshot_id: int | None,
        columns: Sequence[str],
        *,
        match: pa.Table | None,
        near: pa.Table | None = None,
    ) -> pa.Table:
        """Return rows of a table with their file and position; `match` and `near` are as in `fetch`."""
        with _local_only():
            files = _files_near(table, self.lake.files.of(table, snapshot_id), near)
            if match is None and sum(file.rows for file in files) > MOST_ROWS:
                raise NotLocalError(f"the build touches all rows of {'.'.join(table.name())}")
            rows = self.lake.store.fetch(
                table, files, columns=list(columns), match=match, places=True, working_set=self._working_set
            )
            return self.bounded(rows)

    def bounded(self, rows: pa.Table) -> pa.Table:
        """Return rows that a build holds in memory. Raise a TooManyRowsError if all rows so far exceed the limits."""
        self._read_bytes.append(rows.nbytes)
        if rows.num_rows > MOST_ROWS or sum(self._read_bytes) > MOST_BYTES:
            raise TooManyRowsError(f"{rows.num_rows:,} rows of {rows.nbytes:,} bytes are too many for memory")
        return rows

    def _read(
        self,
        table: Table,
        snapshot_id: int,
        columns: Sequence[Column],
        *,
        match: Sequence[pa.Table] | None,
        between: Ranges | None,
        near: pa.Table | None = None,
        also: Sequence[str] = (),
    ) -> pa.Table:
        have = {field.name for field in table.schema().fields}
        names = [name for name in dict.fromkeys((*(column.name for column in columns), *also)) if name in have]
        several = match is not None and len(match) > 1
        with _local_only():
            files = _files_near(table, self.lake.files.of(table, snapshot_id), near)
            parts = [
                self.lake.store.fetch(
                    table,
                    files,
                    columns=names,
                    match=values,
                    between=between,
                    places=several,
                    working_set=self._working_set,
                )
                for values in ([None] if match is None else match)
            ]
        if not several:
            return self.bounded(parts[0])
        rows = pa.concat_tables(parts)
        first = pl.DataFrame(rows.select([FILE, POSITION])).with_row_index("row").unique([FILE, POSITION], keep="first")
        return self.bounded(rows.take(first["row"].sort().to_arrow()).drop_columns([FILE, POSITION]))

    def _fit(self, rows: pa.Table | None, columns: tuple[Column, ...], also: Sequence[str] = ()) -> pa.Table:
        """Return rows with the lake's columns in its order; columns that the table lacks are null."""
        schema = arrow_schema(columns)
        rows = schema.empty_table() if rows is None else rows
        extra = [name for name in also if name in rows.column_names and name not in schema.names]
        known = set(rows.column_names)
        fitted = [rows[field.name] if field.name in known else pa.nulls(rows.num_rows, field.type) for field in schema]
        return pa.Table.from_arrays([*fitted, *(rows[name] for name in extra)], names=[*schema.names, *extra])


def _files_near(table: Table, files: Sequence[LiveFile], near: pa.Table | None) -> Sequence[LiveFile]:
    """Return the files that may hold rows with these values, judging by their bounds."""
    flat = [] if near is None else [field.name for field in near.schema if not pa.types.is_nested(field.type)]
    if near is None or not flat or not near.num_rows:
        return files
    return Match.of(near.select(flat), format_of(table).arrow_schema).files_with(files, table.schema())


@contextmanager
def _local_only() -> Iterator[None]:
    """Raise a NotLocalError if files are too large, alone or together, or have deletes of another engine."""
    try:
        yield
    except TooLargeError as error:
        raise TooManyRowsError(str(error)) from error
    except BuildError as error:
        raise NotLocalError(str(error)) from error


def match_table(values: pa.Table, schema: pa.Schema, *, nulls_match: bool = True) -> pa.Table:
    """Return values as a match table, in the types of the columns that they are compared with.

    Raise a NotLocalError if types differ in more than width, or are nested: only Spark can compare them.
    """
    columns = []
    for name in values.column_names:
        have, wanted = values.schema.field(name).type, schema.field(name).type
        if not is_comparable(have, wanted):
            raise NotLocalError(f"{name} of type {wanted} is compared with type {have}")
        columns.append(values[name].cast(wanted))
    table = pa.Table.from_arrays(columns, names=values.column_names)
    return table if nulls_match else table.drop_null()


def is_comparable(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether comparing values of one type with a column of another gives the same result here as in Spark."""
    texts, integers = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), pa.types.is_integer
    both_text = any(is_text(have) for is_text in texts) and any(is_text(wanted) for is_text in texts)
    both_binary = "binary" in str(have) and "binary" in str(wanted)
    widens = integers(have) and integers(wanted) and have.bit_width <= wanted.bit_width
    return not pa.types.is_nested(wanted) and (have == wanted or both_text or both_binary or widens)
