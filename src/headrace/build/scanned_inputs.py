"""Inputs read with Spark's scans: any number of rows, on any number of executors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.batch_stats import batch_stats_metrics, read_batch_stats
from headrace.build.changes import read_changes
from headrace.build.checked_rows import CheckedRows
from headrace.build.inputs import is_raw, position_column, read_input
from headrace.build.joins import MOST_BROADCAST, broadcast_few, drop_matching, keep_matching
from headrace.build.key_bounds import bounds_expression, key_bounds
from headrace.build.planned_inputs import OldRows, PlannedInputs
from headrace.build.pruning import with_keys_near
from headrace.build.removed import read_deletes, read_truncates
from headrace.build.rows import ChangeSet, Rows, SparkRows
from headrace.build.windows import Affected, touched_windows
from headrace.iceberg.files.spark_files import FILE, POSITION, load_java_table, plan_files, read_files
from headrace.quality.expectations import Measured, rows_in
from headrace.spark.columns import named
from headrace.spec.model.layers import Window
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ScannedInputs(PlannedInputs):
    """Inputs that scan snapshots with Spark, pruned by the bounds of files."""

    _persisted: list[DataFrame] = field(default_factory=list)

    @property
    def changes_few(self) -> bool:
        return self.plan.reads_few or self.plan.is_small

    def whole(self, name: TableName) -> Rows:
        return SparkRows(read_input(self.lake.spark, name, self.plan.until[name], columns=self.lake.columns[name]))

    def none(self, name: TableName) -> Rows:
        return SparkRows(self.whole(name).frame.limit(0))

    def changes(self, name: TableName) -> ChangeSet:
        return read_changes(
            self.lake.spark,
            self.lake.catalog,
            self.lake.pipeline,
            name,
            since=self.plan.since[name],
            until=self.plan.until[name],
            columns=self.lake.columns[name],
        )

    def unchanged(self, name: TableName, values: Rows, *, near: Rows | None = None) -> Rows:
        return SparkRows(keep_matching(self._read_before(name), self._values(values), values.columns))

    def matching(self, name: TableName, values: Rows, *, past: bool = False, near: Rows | None = None) -> Rows:
        rows = self._past(name) if past else self.whole(name)
        return SparkRows(keep_matching(rows.frame, self._values(values), values.columns))

    def without(self, rows: Rows, values: Rows) -> Rows:
        return SparkRows(drop_matching(rows.frame, self._values(values), values.columns))

    def near(self, name: TableName, touched: Rows) -> Rows:
        return SparkRows(with_keys_near(self.whole(name).frame, self.table, touched.frame))

    def around(self, name: TableName, changes: ChangeSet, window: Window) -> Affected:
        return touched_windows(self.whole(name).frame, changes, window)

    def lookups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> Mapping[TableName, Rows]:
        return {name: self._past(name) if name in past else self.whole(name) for name in self.table.lookups}

    @contextmanager
    def old_rows(self, touched: Rows | None, columns: Sequence[str]) -> Iterator[OldRows]:
        spark, table = self.lake.spark, load_java_table(self.lake.spark, self.table.table)
        current = table.currentSnapshot()
        snapshot_id = None if current is None else int(current.snapshotId())
        where = None if touched is None else bounds_expression(spark, key_bounds(touched.frame, self.table))
        candidates = plan_files(table, snapshot_id=snapshot_id, where=where)
        with read_files(spark, table, candidates, with_positions=True) as rows:
            old = rows if touched is None else keep_matching(rows, touched.frame, self.table.keys)
            placed = SparkRows(old.select(*map(named, (*columns, FILE, POSITION))))
            yield OldRows(placed, snapshot_id, candidates.bytes, candidates)

    def recorded_deletes(self, columns: tuple[Column, ...], keys: DataFrame) -> DataFrame | None:
        generation = self.plan.entry.generation
        deletes = read_deletes(self.lake.spark, self.lake.catalog, self.table.table, generation=generation, columns=columns)
        return None if deletes is None else keep_matching(deletes, keys, self.table.keys)

    def recorded_truncates(self, columns: tuple[Column, ...]) -> DataFrame | None:
        generation = self.plan.entry.generation
        return read_truncates(self.lake.spark, self.lake.catalog, self.table.table, generation=generation, columns=columns)

    def keep_touched(self, rows: DataFrame, touched: Rows) -> DataFrame:
        return keep_matching(rows, touched.frame, self.table.keys)

    def keys(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> Rows:
        # The query may hide a key for these rows alone that it shows together with the key's unchanged rows.
        keys = self.keys_of_rows(drivers) if self.table.computes_whole_keys else None
        return self.once((self.key_rows(drivers, past=past) if keys is None else keys.frame).distinct())

    def check(self, measured: Measured) -> CheckedRows:
        computed = self.once(measured.rows)
        measured = replace(measured, rows=computed.frame)
        metrics = [*measured.metrics(), *batch_stats_metrics(self.table, computed.frame, self.plan.entry)]
        row = computed.frame.agg(*metrics).first()
        assert row is not None
        values = row.asDict()
        return CheckedRows(
            computed,
            good=SparkRows(measured.good),
            refused=measured.refused,
            processed=rows_in(values),
            results=measured.read_metrics(values),
            batch_stats=read_batch_stats(values),
        )

    def frame(self, name: str, rows: Rows) -> DataFrame:
        return rows.frame

    def once(self, rows: DataFrame) -> Rows:
        persisted = rows.persist()
        self._persisted.append(persisted)
        return SparkRows(persisted)

    def close(self) -> None:
        while self._persisted:
            self._persisted.pop().unpersist()

    def _values(self, values: Rows) -> DataFrame:
        """Return the distinct lookup values. Joins broadcast them only if they are few."""
        persisted = self.once(values.frame.distinct()).frame
        return broadcast_few(persisted, persisted.limit(MOST_BROADCAST + 1).count())

    def _past(self, name: TableName) -> Rows:
        if is_raw(name, self.lake.pipeline):
            return SparkRows(self._read_before(name))  # raw tables are append-only and expire snapshots
        return SparkRows(read_input(self.lake.spark, name, self.plan.since[name], columns=self.lake.columns[name]))

    def _read_before(self, name: TableName) -> DataFrame:
        """Return the rows of an input that the last build already read and that still exist."""
        position = position_column(name, self.lake.pipeline)
        columns = self.lake.columns[name]
        rows = read_input(self.lake.spark, name, self.plan.until[name], columns=columns, with_position=position)
        rows = rows.where(F.col(position) <= self.plan.since[name].position)
        return rows.select(*(named(column.name) for column in columns))
