"""The interface through which a build reads its inputs at the states of its plan.

It has two implementations: `ScannedInputs` reads any number of rows with Spark, `LocalInputs` fetches few rows as Arrow through
file indexes. The code that computes on the rows is the same for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.build.access import driver_constants, driver_keys
from headrace.build.aggregates.algebra import Algebra, find_algebra
from headrace.build.checked_rows import CheckedRows
from headrace.build.inputs import is_raw
from headrace.build.lake import Lake
from headrace.build.plan import TablePlan
from headrace.build.rows import ChangeSet, Rows, union
from headrace.build.source import run_source
from headrace.build.stored_columns import stored_columns
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.files.spark_files import ScanFiles
from headrace.quality.expectations import Measured
from headrace.spark.columns import named
from headrace.spark.prepared_queries import derive
from headrace.spec.model.layers import STATE, LayerTable, Query, Window
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column
from headrace.spec.sql.sliding_windows import add_running_sums
from headrace.spec.sql.stage_query import follow_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.build.windows import Affected


class NotLocalError(Exception):
    """The build can't run in this process, and must use Spark's scans."""


class TooManyRowsError(NotLocalError):
    """The build needs more rows than fit into this process. A build with fewer changes may need fewer."""


@dataclass(frozen=True)
class OldRows:
    """Rows of one snapshot of a table, with `_file` and `_pos`.

    `scanned` are the files that may hold them if Spark planned a scan, `bytes` is the size of the files that were read.
    """

    rows: Rows
    snapshot_id: int | None
    bytes: int
    scanned: ScanFiles | None = None


@dataclass(frozen=True)
class PlannedInputs(ABC):
    """The inputs of one table, and the table's own rows, at the states of the plan."""

    lake: Lake
    plan: TablePlan

    @property
    def table(self) -> LayerTable:
        return self.plan.table

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns of the stored table, including the hidden ones that builds add."""
        return stored_columns(self.table, self.lake.columns[self.table.table], has_states=self.algebra is not None)

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The column of partial states, if the table has it."""
        return (STATE,) if self.algebra else ()

    @cached_property
    def algebra(self) -> Algebra | None:
        """The algebra of the table's partial states, or None without partial states."""
        algebra = find_algebra(self.lake.spark, self.table, self.lake.columns)
        return algebra if isinstance(algebra, Algebra) else None

    def moved(self, name: TableName) -> bool:
        return not self.plan.since[name].is_at(self.plan.until[name])

    def knows_past(self, name: TableName) -> bool:
        """Return whether the input's state at the last build can still be read."""
        since = self.plan.since[name]
        if is_raw(name, self.lake.pipeline) or since.snapshot_id is None:
            return True
        table = load_table(self.lake.catalog, name)
        return table is not None and table.snapshot_by_id(since.snapshot_id) is not None

    @property
    @abstractmethod
    def changes_few(self) -> bool:
        """Whether the build's changes fit into this process, so that they are merged on read."""

    @abstractmethod
    def whole(self, name: TableName) -> Rows:
        """Return all rows of an input."""

    @abstractmethod
    def none(self, name: TableName) -> Rows:
        """Return no rows, with the input's schema."""

    @abstractmethod
    def changes(self, name: TableName) -> ChangeSet:
        """Return the change set of an input since the last build."""

    @abstractmethod
    def unchanged(self, name: TableName, values: Rows, *, near: Rows | None = None) -> Rows:
        """Return the rows with any of these values that the last build already read.

        `near` are the rows' values in constant columns, which prune files.
        """

    @abstractmethod
    def matching(self, name: TableName, values: Rows, *, past: bool = False, near: Rows | None = None) -> Rows:
        """Return the rows with any of these values, at the plan's state, or with `past` at the state of the last build.

        `near` is as in `unchanged`.
        """

    @abstractmethod
    def without(self, rows: Rows, values: Rows) -> Rows:
        """Return the rows with none of these values."""

    @abstractmethod
    def near(self, name: TableName, touched: Rows) -> Rows:
        """Return all rows of a driver that may have a touched key; the result may contain other rows."""

    @abstractmethod
    def around(self, name: TableName, changes: ChangeSet, window: Window) -> Affected:
        """Return the rows that are needed to recompute every row whose window a change touches."""

    @abstractmethod
    def lookups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> Mapping[TableName, Rows]:
        """Return the lookups for these driver rows: at the plan's state, or for lookups in `past` at the last build's."""

    @abstractmethod
    def old_rows(self, touched: Rows | None, columns: Sequence[str]) -> AbstractContextManager[OldRows]:
        """Yield the table's own rows of the touched keys, or all rows, for the duration of the block."""

    @abstractmethod
    def recorded_deletes(self, columns: tuple[Column, ...], keys: DataFrame) -> DataFrame | None:
        """Return the recorded events that deleted rows of these keys, or None if there are none."""

    @abstractmethod
    def recorded_truncates(self, columns: tuple[Column, ...]) -> DataFrame | None:
        """Return the recorded truncates, possibly with duplicates, or None if there are none."""

    @abstractmethod
    def keep_touched(self, rows: DataFrame, touched: Rows) -> DataFrame:
        """Return the query's rows with a touched key, computed from driver rows of `near`."""

    @abstractmethod
    def keys(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> Rows:
        """Return the distinct keys that the query computes from these rows; the result may contain other keys.

        It has the constant columns, too, if the query was run, or if they are plain columns of the drivers.
        """

    def plain_keys(self, name: TableName) -> Mapping[str, str]:
        """Return the driver's column for each key; empty if a key is not a plain column."""
        columns = {key: column for column, key in driver_keys(self.lake, self.table, name).items()}
        return columns if set(columns) == set(self.table.keys) else {}

    def _plain_constants(self, name: TableName) -> Mapping[str, str]:
        """Return the driver's column for each constant column that is a plain column."""
        return {constant: column for column, constant in driver_constants(self.lake, self.table, name).items()}

    def keys_of_rows(self, drivers: Mapping[TableName, Rows]) -> Rows | None:
        """Return the distinct keys of driver rows without running the query; None if a key is not a plain column.

        Constant columns that are plain columns of all drivers are included.
        """
        plain = {name: self.plain_keys(name) for name in drivers}
        if not all(plain.values()):
            return None
        constants = [self._plain_constants(name) for name in drivers]
        shared = [name for name in self.table.constant if all(name in columns for columns in constants)]
        parts = [
            rows.select({**plain[name], **{constant: columns[constant] for constant in shared}})
            for (name, rows), columns in zip(drivers.items(), constants, strict=True)
        ]
        return union(parts, empty=parts[0]).distinct()

    @abstractmethod
    def check(self, measured: Measured) -> CheckedRows:
        """Compute a build's rows once, and return them with the results of their expectations."""

    @abstractmethod
    def frame(self, name: str, rows: Rows) -> DataFrame:
        """Return rows for a query, which only `once` or `check` can compute. `name` identifies the rows in the query."""

    @abstractmethod
    def once(self, rows: DataFrame) -> Rows:
        """Compute rows once, so that they can be read repeatedly until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Release the rows of `once`."""

    def key_rows(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> DataFrame:
        """Return the keys and constant columns of the query's result on these rows."""
        names = tuple(dict.fromkeys((*self.table.keys, *self.table.constant)))
        return derive(self.run_groups(drivers, past=past), ("keys", names), lambda rows: rows.select(*map(named, names)))

    def run_groups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> DataFrame:
        """Run the query on these driver rows; for an aggregate, with states and with the keys that HAVING hides.

        The result is computed by `once` or `check`.
        """
        if self.algebra:
            return self._run(replace(self.table, source=self.algebra.source), drivers, past=past)
        return self.run(drivers, past=past)

    def run(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> DataFrame:
        """Run the query on these driver rows and their lookups. The result is computed by `once` or `check`."""
        columns = self.lake.columns
        return self._run(add_running_sums(follow_columns(self.table, columns), columns), drivers, past=past)

    def _run(self, table: LayerTable, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> DataFrame:
        rows = {**self.lookups(drivers, past=past), **drivers}
        if not isinstance(table.source, Query):  # a Python function may compute its inputs itself
            return run_source(self.lake.spark, table, {name: part.frame for name, part in rows.items()})
        frames = {name: self.frame(str(name), part) for name, part in rows.items()}
        if not frames:
            return run_source(self.lake.spark, table, {})
        first, *others = frames.values()

        def run(*given: DataFrame) -> DataFrame:
            return run_source(self.lake.spark, table, dict(zip(frames, given, strict=True)))

        return derive(first, ("run", table.table, table.source.text), run, *others)
