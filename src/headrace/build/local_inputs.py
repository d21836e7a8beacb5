"""Inputs of a small build: few rows, fetched as Arrow through file indexes, which Spark then reads from memory.

The cost does not depend on the size of a table. If a build needs more rows than fit into memory, a NotLocalError is raised
before anything is written, and the build uses Spark's scans instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.build.access import driver_keys, key_ranges, lookup_paths
from headrace.build.batch_stats import BatchStats, batch_stats_here, batch_stats_metrics, has_batch_stats, read_batch_stats
from headrace.build.checked_rows import CheckedRows
from headrace.build.events import event_marks
from headrace.build.joins import keep_matching
from headrace.build.local_tables import MOST_ROWS, LocalTables, match_table
from headrace.build.planned_inputs import NotLocalError, OldRows, PlannedInputs
from headrace.build.removed import DELETED, TRUNCATES
from headrace.build.rows import ChangeSet, LocalRows, Rows, collect
from headrace.build.text_keys import values_for
from headrace.build.touched_rows import read_columns
from headrace.build.types import spark_schema
from headrace.build.windows import Affected, moments_of, window_ranges
from headrace.iceberg.files.live_files import LiveFile
from headrace.iceberg.files.write import format_of
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.iceberg.rows.row_store import FILE, POSITION
from headrace.iceberg.schema.columns import arrow_schema
from headrace.quality.expectations import Measured
from headrace.spark.arrow import collect_prepared, optional
from headrace.spark.prepared_queries import derive, make_placeholder
from headrace.spark.schemas import schema_key
from headrace.spec.model.layers import Window
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

SMALL_LOOKUP = 2_000
"""Lookups with at most this many rows are read whole: fetching rows by the join columns would cost as much."""


class LocalInputs(PlannedInputs):
    """Inputs that fetch few rows with every read."""

    @property
    def changes_few(self) -> bool:
        return True

    def whole(self, name: TableName) -> LocalRows:
        return self._rows(name, self._tables.fetch(name, self.plan.until[name]))

    def none(self, name: TableName) -> Rows:
        return self._rows(name, arrow_schema(self.lake.columns[name]).empty_table())

    def changes(self, name: TableName) -> ChangeSet:
        since, until = self.plan.since[name], self.plan.until[name]

        def read() -> ChangeSet:
            entered = self._rows(name, self._tables.entered(name, since=since, until=until))
            left = self._tables.left(name, since=since, until=until)
            return ChangeSet(entered, None if left is None else self._rows(name, left))

        # A table's change set is shared by its downstream tables, which are mostly at the same position.
        key = (self.lake.spark, name, self.lake.columns[name], since, until)
        return self.lake.change_sets.get_or_build(key, read, weigh=lambda changes: changes.nbytes)

    def unchanged(self, name: TableName, values: Rows, *, near: Rows | None = None) -> Rows:
        since, until, match = self.plan.since[name], self.plan.until[name], self._match(name, values)
        return self._rows(name, self._tables.before(name, since=since, until=until, match=match, near=_arrow_of(near)))

    def matching(self, name: TableName, values: Rows, *, past: bool = False, near: Rows | None = None) -> Rows:
        since, until, match = self.plan.since[name], self.plan.until[name], self._match(name, values)
        if past:
            return self._rows(name, self._tables.past(name, since=since, until=until, match=match, near=_arrow_of(near)))
        return self._rows(name, self._tables.fetch(name, until, match=match, near=_arrow_of(near)))

    def without(self, rows: Rows, values: Rows) -> Rows:
        names = arrow_of(values).column_names
        left, right = pl.DataFrame(arrow_of(rows).select(names)), pl.DataFrame(arrow_of(values))
        numbered = left.with_row_index("__row").join(right.cast(left.schema), on=names, how="anti", nulls_equal=True)
        remaining = arrow_of(rows).take(numbered["__row"].to_arrow())
        return LocalRows(self.lake.spark, remaining, _local(rows).schema)

    def near(self, name: TableName, touched: Rows) -> Rows:
        keys = driver_keys(self.lake, self.table, name)
        ranges = key_ranges(self.lake, self.table, name, arrow_of(touched))
        match = self._match(name, touched.select(keys)) if keys else None
        if match is None and ranges is None and self.plan.until[name].rows > MOST_ROWS:
            raise NotLocalError(f"rows of {name} can't be looked up by the keys of {self.table.table}")
        return self._rows(name, self._tables.fetch(name, self.plan.until[name], match=match, between=ranges))

    def around(self, name: TableName, changes: ChangeSet, window: Window) -> Affected:
        moments = changes.both([*window.partition_by, window.order_by])
        parts = self._match(name, moments.select(window.partition_by))
        between = window_ranges(arrow_of(moments), window)
        columns = self._read_columns(name, also=(*window.partition_by, window.order_by))
        rows = self._tables.fetch(name, self.plan.until[name], match=parts, between=between, columns=columns)
        context = LocalRows(self.lake.spark, rows, spark_schema(columns))
        return Affected(context, self.frame("moments", moments_of(changes, window)), window)

    def _read_columns(self, name: TableName, *, also: Collection[str]) -> tuple[Column, ...]:
        """Return the columns of an input that the query reads, plus `also`; all columns if the query's are unknown."""
        columns = self.lake.columns[name]
        read = read_columns(self.lake, self.table).get(name)
        return columns if read is None else tuple(column for column in columns if column.name in {*read, *also})

    def lookups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> Mapping[TableName, Rows]:
        paths = lookup_paths(self.lake, self.table)
        known: dict[TableName, Rows] = dict(drivers)
        for name in paths.order:
            since, until = self.plan.since[name], self.plan.until[name]
            routes, match = paths.lookups[name], None
            if name not in past and until.rows <= SMALL_LOOKUP:
                known[name] = self._small_lookup(name)
                continue
            if max(until.rows, since.rows) > SMALL_LOOKUP:
                if routes is None:
                    raise NotLocalError(f"all rows of {name} are needed: {paths.reasons[name]}")
                sides = [values_for(route, known[route.source], self.lake.columns[name]) for route in routes]
                match = [table for side in sides for table in self._match(name, side, nulls_match=False)]
            if name in past:
                rows = self._tables.past(name, since=since, until=until, match=match)
            else:
                rows = self._tables.fetch(name, until, match=match)
            known[name] = self._rows(name, rows)
        return {name: known[name] for name in self.table.lookups}

    def _small_lookup(self, name: TableName) -> LocalRows:
        key = (self.lake.spark, name, self.lake.columns[name], self.plan.until[name].snapshot_id)
        return self.lake.lookups.get_or_build(key, lambda: self.whole(name), weigh=lambda rows: rows.arrow.nbytes)

    @property
    def own_table(self) -> Table:
        """The table that is built."""
        return self.lake.catalog.load_table(str(self.table.table))

    def files_of(self, table: Table) -> tuple[LiveFile, ...]:
        """Return the files of a loaded table. Raise a NotLocalError if they include deletes of another engine."""
        return self._tables.files(table)

    @contextmanager
    def old_rows(self, touched: Rows | None, columns: Sequence[str]) -> Iterator[OldRows]:
        table = self.own_table
        snapshot = table.current_snapshot()
        snapshot_id = snapshot.snapshot_id if snapshot else None
        match = near = None
        if touched is not None:
            keys = arrow_of(touched.select(list(self.table.keys)))
            match = match_table(keys, format_of(table).arrow_schema)
            near = arrow_of(touched.select([name for name in self.table.constant if name in touched.columns]))
        rows = self._tables.placed(table, snapshot_id, columns, match=match, near=near)
        known = {column.name: column for column in self.stored_columns}
        schema = spark_schema([known[name] for name in columns]).add(FILE, "string").add(POSITION, "long")
        yield OldRows(LocalRows(self.lake.spark, rows, schema), snapshot_id, bytes=rows.nbytes)

    def recorded_deletes(self, columns: tuple[Column, ...], keys: DataFrame) -> DataFrame | None:
        wanted = arrow_of(collect(self.lake.spark, keys.select(*self.table.keys)))
        schema = arrow_schema(columns)
        match = [match_table(wanted, schema)]
        rows = self._tables.recorded(self.table.table, columns, generation=self.plan.entry.generation, match=match)
        if rows is None:
            return None
        deletes = pc.and_(rows[DELETED], pc.invert(pc.fill_null(rows[TRUNCATES], False)))
        return LocalRows(self.lake.spark, rows.filter(deletes), spark_schema(columns)).frame

    def recorded_truncates(self, columns: tuple[Column, ...]) -> DataFrame | None:
        rows = self._tables.recorded(self.table.table, columns, generation=self.plan.entry.generation)
        if rows is None:
            return None
        truncates = rows.filter(pc.fill_null(rows[TRUNCATES], False))
        return LocalRows(self.lake.spark, truncates, spark_schema(columns)).frame

    def keep_touched(self, rows: DataFrame, touched: Rows) -> DataFrame:
        if all(self.plain_keys(name) for name in self.table.drivers):
            return rows  # the drivers' rows were fetched by these keys
        keys = self.table.keys
        return derive(
            rows, ("touched", keys), lambda rows, touched: keep_matching(rows, touched, keys), self.frame("touched", touched)
        )

    def keys(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> Rows:
        keys = self.keys_of_rows(drivers)
        return self.once(self.key_rows(drivers, past=past)).distinct() if keys is None else keys

    def check(self, measured: Measured) -> CheckedRows:
        table, reported = self.table, measured.reported
        also = (DELETED,) if table.apply_as_deletes else ()
        if has_batch_stats(table):
            conditions = (table.apply_as_deletes, table.apply_as_truncates)
            reported = derive(reported, ("marks", *conditions), lambda rows: rows.withColumns(event_marks(table)))
        computed = self.once(reported)
        report = measured.read_report(computed.arrow, also=also)
        good = computed.select([*measured.columns, *also])
        before = BuildLedger() if self.plan.action == "refresh" else self.plan.entry
        return CheckedRows(
            computed,
            good=replace(good, arrow=report.good),
            refused=report.refused,
            processed=computed.arrow.num_rows,
            results=report.results,
            batch_stats=self._batch_stats(computed, before) if has_batch_stats(table) else BatchStats(),
        )

    def _batch_stats(self, computed: LocalRows, before: BuildLedger) -> BatchStats:
        stats = batch_stats_here(self.table, computed.arrow, before)
        if stats is not None:
            return stats
        values = computed.frame.agg(*batch_stats_metrics(self.table, computed.frame, before)).first()
        assert values is not None
        return read_batch_stats(values.asDict())

    def frame(self, name: str, rows: Rows) -> DataFrame:
        local = _local(rows)
        uses = self._uses.setdefault(name, [])
        # Different rows of the same name get another placeholder: a query on the first rows may not be computed yet.
        number = next((number for number, used in enumerate(uses) if used is local), len(uses))
        if number == len(uses):
            uses.append(local)
        key = (self.lake.spark, self.table.table, name, number, schema_key(local.schema))
        placeholder = self.lake.placeholders.get_or_build(key, lambda: make_placeholder(self.lake.spark, local.schema))
        self._bound[placeholder.id] = local
        return placeholder.frame

    def once(self, rows: DataFrame) -> LocalRows:
        arrow = collect_prepared(rows, lambda number: self._bound[number].relation)
        self._tables.bounded(arrow)
        return LocalRows(self.lake.spark, arrow, optional(rows.schema))

    def close(self) -> None:
        """Do nothing: the rows in memory are freed with the build."""

    @cached_property
    def _bound(self) -> dict[int, LocalRows]:
        """The rows of the build's queries, by placeholder id."""
        return {}

    @cached_property
    def _uses(self) -> dict[str, list[LocalRows]]:
        """The rows of the build's queries, by name."""
        return {}

    @cached_property
    def _tables(self) -> LocalTables:
        return LocalTables(self.lake)

    def _rows(self, name: TableName, rows: pa.Table) -> LocalRows:
        return LocalRows(self.lake.spark, rows, spark_schema(self.lake.columns[name]))

    def _match(self, name: TableName, values: Rows, *, nulls_match: bool = True) -> list[pa.Table]:
        return [match_table(arrow_of(values), arrow_schema(self.lake.columns[name]), nulls_match=nulls_match)]


def _local(rows: Rows) -> LocalRows:
    if not isinstance(rows, LocalRows):
        raise NotLocalError("the rows are not in this process")
    return rows


def _arrow_of(rows: Rows | None) -> pa.Table | None:
    return None if rows is None else arrow_of(rows)


def arrow_of(rows: Rows) -> pa.Table:
    """Return rows in this process as Arrow. Raise a NotLocalError for rows that only Spark has."""
    return _local(rows).arrow
