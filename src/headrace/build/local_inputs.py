"""Inputs of a small build: few rows, fetched as Arrow through file indexes, which Spark then reads from memory.

Nothing here depends on how much a table holds. Where a build would need more rows than fit, a NotLocalError says so, and it is
run on Spark's scans instead; nothing has been written by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.build.access import driver_keys, key_ranges, lookup_paths
from headrace.build.features import Affected, local_windows, window_ranges
from headrace.build.local_tables import MOST_ROWS, LocalTables, match_table
from headrace.build.planned_inputs import NotLocalError, OldRows, PlannedInputs
from headrace.build.removed import DELETED, TRUNCATES
from headrace.build.rows import ChangeSet, LocalRows, Rows, collect
from headrace.build.types import spark_schema
from headrace.spec.layers import Window
from headrace.spec.pipeline import TableName
from headrace.spec.types import Column
from headrace.tables.row_store import FILE, POSITION
from headrace.tables.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_LOOKUP = 2_000
"""Up to so many rows a lookup is read whole: a fetch by its join columns would cost as much."""


class LocalInputs(PlannedInputs):
    """Every read is a fetch of few rows."""

    @property
    def changes_few(self) -> bool:
        return True

    def whole(self, name: TableName) -> Rows:
        return self._rows(name, self._tables.fetch(name, self.plan.until[name]))

    def none(self, name: TableName) -> Rows:
        return self._rows(name, arrow_schema(self.lake.columns[name]).empty_table())

    def changes(self, name: TableName) -> ChangeSet:
        since, until = self.plan.since[name], self.plan.until[name]
        entered = self._rows(name, self._tables.entered(name, since=since, until=until))
        left = self._tables.left(name, since=since, until=until)
        return ChangeSet(entered, None if left is None else self._rows(name, left))

    def unchanged(self, name: TableName, values: Rows) -> Rows:
        since, until = self.plan.since[name], self.plan.until[name]
        return self._rows(name, self._tables.before(name, since=since, until=until, match=self._match(name, values)))

    def past(self, name: TableName, values: Rows) -> Rows:
        since, until = self.plan.since[name], self.plan.until[name]
        return self._rows(name, self._tables.past(name, since=since, until=until, match=self._match(name, values)))

    def without(self, rows: Rows, values: Rows) -> Rows:
        names = _arrow(values).column_names
        left, right = pl.DataFrame(_arrow(rows).select(names)), pl.DataFrame(_arrow(values))
        numbered = left.with_row_index("__row").join(right.cast(left.schema), on=names, how="anti", nulls_equal=True)
        kept = _arrow(rows).take(numbered["__row"].to_arrow())
        return LocalRows(self.lake.spark, kept, _local(rows).schema)

    def near(self, name: TableName, touched: Rows) -> Rows:
        keys = driver_keys(self.lake, self.table, name)
        ranges = key_ranges(self.lake, self.table, name, _arrow(touched))
        match = self._match(name, touched.select(keys)) if keys else None
        if match is None and ranges is None and self.plan.until[name].rows > MOST_ROWS:
            raise NotLocalError(f"rows of {name} can't be found by the keys of {self.table.table}")
        return self._rows(name, self._tables.fetch(name, self.plan.until[name], match=match, between=ranges))

    def around(self, name: TableName, changes: ChangeSet, window: Window) -> Affected:
        moments = changes.both([*window.partition_by, window.order_by])
        parts = self._match(name, moments.select(window.partition_by))
        between = window_ranges(_arrow(moments), window)
        rows = self._tables.fetch(name, self.plan.until[name], match=parts, between=between)
        return local_windows(self._rows(name, rows), changes, window)

    def lookups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> Mapping[TableName, Rows]:
        paths = lookup_paths(self.lake, self.table)
        known: dict[TableName, Rows] = dict(drivers)
        for name in paths.order:
            since, until = self.plan.since[name], self.plan.until[name]
            ways, match = paths.lookups[name], None
            if max(until.rows, since.rows if name in past else 0) > SMALL_LOOKUP:
                if ways is None:
                    raise NotLocalError(f"{name} is needed whole: {paths.reasons[name]}")
                sides = [known[way.source].select(dict(zip(way.columns, way.source_columns, strict=True))) for way in ways]
                match = [table for side in sides for table in self._match(name, side, nulls_match=False)]
            if name in past:
                rows = self._tables.past(name, since=since, until=until, match=match)
            else:
                rows = self._tables.fetch(name, until, match=match)
            known[name] = self._rows(name, rows)
        return {name: known[name] for name in self.table.lookups}

    @contextmanager
    def old_rows(self, touched: Rows | None, columns: Sequence[str]) -> Iterator[OldRows]:
        table = self.lake.catalog.load_table(str(self.table.table))
        snapshot = table.current_snapshot()
        snapshot_id = snapshot.snapshot_id if snapshot else None
        match = None
        if touched is not None:
            keys = _arrow(touched.select(list(self.table.keys)))
            match = match_table(keys, table.schema().as_arrow())
        rows = self._tables.placed(table, snapshot_id, columns, match=match)
        known = {column.name: column for column in self.stored_columns}
        schema = spark_schema([known[name] for name in columns]).add(FILE, "string").add(POSITION, "long")
        yield OldRows(LocalRows(self.lake.spark, rows, schema).frame, snapshot_id, bytes=rows.nbytes)

    def kept_deletes(self, columns: tuple[Column, ...], keys: DataFrame) -> DataFrame | None:
        wanted = _arrow(collect(self.lake.spark, keys.select(*self.table.keys)))
        schema = arrow_schema(columns)
        match = [match_table(wanted, schema)]
        rows = self._tables.kept(self.table.table, columns, generation=self.plan.entry.generation, match=match)
        if rows is None:
            return None
        deletes = pc.and_(rows[DELETED], pc.invert(pc.fill_null(rows[TRUNCATES], False)))
        return LocalRows(self.lake.spark, rows.filter(deletes), spark_schema(columns)).frame

    def kept_truncates(self, columns: tuple[Column, ...]) -> DataFrame | None:
        rows = self._tables.kept(self.table.table, columns, generation=self.plan.entry.generation)
        if rows is None:
            return None
        truncates = rows.filter(pc.fill_null(rows[TRUNCATES], False))
        return LocalRows(self.lake.spark, truncates, spark_schema(columns)).frame

    def once(self, rows: DataFrame) -> Rows:
        kept = collect(self.lake.spark, rows)
        self._tables.bounded(kept.arrow)
        return kept

    def close(self) -> None:
        """Do nothing: what is in memory goes with the build."""

    @cached_property
    def _tables(self) -> LocalTables:
        return LocalTables(self.lake)

    def _rows(self, name: TableName, rows: pa.Table) -> Rows:
        return LocalRows(self.lake.spark, rows, spark_schema(self.lake.columns[name]))

    def _match(self, name: TableName, values: Rows, *, nulls_match: bool = True) -> list[pa.Table]:
        return [match_table(_arrow(values), arrow_schema(self.lake.columns[name]), nulls_match=nulls_match)]


def _local(rows: Rows) -> LocalRows:
    if not isinstance(rows, LocalRows):
        raise NotLocalError("rows that only Spark has")
    return rows


def _arrow(rows: Rows) -> pa.Table:
    return _local(rows).arrow
