"""How a build reads its inputs, at the positions that its plan names.

Two forms do the same: `ScannedInputs` reads with Spark whatever the size, `LocalInputs` fetches few rows as Arrow through file
indexes. What is computed of the rows is the same code for both.
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
    """A build can't be run in this process: it has to be run with Spark's scans."""


class TooManyRowsError(NotLocalError):
    """A build needs more rows than fit into this process; one of fewer changes may need fewer."""


@dataclass(frozen=True)
class OldRows:
    """Rows of one snapshot of a table, with `_file` and `_pos`.

    `scanned` are the files that can hold them where Spark has planned a scan, `bytes` the sizes of the files that were read.
    """

    rows: Rows
    snapshot_id: int | None
    bytes: int
    scanned: ScanFiles | None = None


@dataclass(frozen=True)
class PlannedInputs(ABC):
    """The inputs of one table, and the table's own rows, at the positions that the plan names."""

    lake: Lake
    plan: TablePlan

    @property
    def table(self) -> LayerTable:
        return self.plan.table

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns of the table as it is stored, with the hidden ones of builds."""
        return stored_columns(self.table, self.lake.columns[self.table.table], has_states=self.algebra is not None)

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The column of partial states, where the table has them."""
        return (STATE,) if self.algebra else ()

    @cached_property
    def algebra(self) -> Algebra | None:
        """How the table is maintained by partial states, or None where it has none."""
        found = find_algebra(self.lake.spark, self.table, self.lake.columns)
        return found if isinstance(found, Algebra) else None

    def moved(self, name: TableName) -> bool:
        return not self.plan.since[name].is_at(self.plan.until[name])

    def knows_past(self, name: TableName) -> bool:
        """Return whether an input can still be read as the last build read it."""
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
        """Return an input without rows."""

    @abstractmethod
    def changes(self, name: TableName) -> ChangeSet:
        """Return what happened to an input since the last build."""

    @abstractmethod
    def unchanged(self, name: TableName, values: Rows, *, near: Rows | None = None) -> Rows:
        """Return the rows that the last build had read already and whose columns have any of these values.

        `near` are values that these rows have in other columns, which never change: they tell which files to look into.
        """

    @abstractmethod
    def matching(self, name: TableName, values: Rows, *, past: bool = False, near: Rows | None = None) -> Rows:
        """Return the rows whose columns have any of these values: as they are, or in the `past` as the last build read them.

        `near` is as in `unchanged`.
        """

    @abstractmethod
    def without(self, rows: Rows, values: Rows) -> Rows:
        """Return the rows whose columns have none of these values."""

    @abstractmethod
    def near(self, name: TableName, touched: Rows) -> Rows:
        """Return every row of a driver that can have a touched key; others may be among them."""

    @abstractmethod
    def around(self, name: TableName, changes: ChangeSet, window: Window) -> Affected:
        """Return what has to be read so that every row whose window a change touches can be computed again."""

    @abstractmethod
    def lookups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> Mapping[TableName, Rows]:
        """Return the lookups for these rows of the drivers: as they are, and those in `past` as the last build read them."""

    @abstractmethod
    def old_rows(self, touched: Rows | None, columns: Sequence[str]) -> AbstractContextManager[OldRows]:
        """Give the table's own rows of the touched keys, or all, while the block runs."""

    @abstractmethod
    def kept_deletes(self, columns: tuple[Column, ...], keys: DataFrame) -> DataFrame | None:
        """Return the events that deleted rows of these keys and were kept, or None where there are none."""

    @abstractmethod
    def kept_truncates(self, columns: tuple[Column, ...]) -> DataFrame | None:
        """Return the truncates that were kept, each once or more, or None where there are none."""

    @abstractmethod
    def keep_touched(self, rows: DataFrame, touched: Rows) -> DataFrame:
        """Return the rows of the query that have a touched key, computed from drivers that `near` returned."""

    @abstractmethod
    def keys(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> Rows:
        """Return the keys that the query makes of these rows, each once; more keys may be among them.

        Constant columns are beside them where the query was run, or where they are plain columns of the drivers.
        """

    def plain_keys(self, name: TableName) -> Mapping[str, str]:
        """Return for each key the column of a driver that it is, or nothing where a key is anything else."""
        columns = {key: column for column, key in driver_keys(self.lake, self.table, name).items()}
        return columns if set(columns) == set(self.table.keys) else {}

    def _plain_constants(self, name: TableName) -> Mapping[str, str]:
        """Return for each constant column the column of a driver that it is; others are left out."""
        return {constant: column for column, constant in driver_constants(self.lake, self.table, name).items()}

    def keys_of_rows(self, drivers: Mapping[TableName, Rows]) -> Rows | None:
        """Return the keys of rows of the drivers without a query, each once; None where a key is not a plain column.

        Constant columns that are plain columns of all drivers are beside them.
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
        """Compute a build's rows once, and return them with what their expectations found."""

    @abstractmethod
    def frame(self, name: str, rows: Rows) -> DataFrame:
        """Return rows for a query that `once` or `check` computes; nothing else can. `name` says what they are in the query."""

    @abstractmethod
    def once(self, rows: DataFrame) -> Rows:
        """Return rows that are computed once, however often they are read until `close`."""

    @abstractmethod
    def close(self) -> None:
        """Release what `once` has kept."""

    def key_rows(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> DataFrame:
        """Return the keys and constant columns of what the table's file makes of these rows."""
        names = tuple(dict.fromkeys((*self.table.keys, *self.table.constant)))
        return derive(self.run_groups(drivers, past=past), ("keys", names), lambda rows: rows.select(*map(named, names)))

    def run_groups(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> DataFrame:
        """Return what the table's file makes of these rows, an aggregate's with states and with the keys that HAVING hides.

        It is computed by `once` or `check`.
        """
        if self.algebra:
            return self._run(replace(self.table, source=self.algebra.source), drivers, past=past)
        return self.run(drivers, past=past)

    def run(self, drivers: Mapping[TableName, Rows], *, past: Collection[TableName] = ()) -> DataFrame:
        """Return what the table's file makes of these rows of its drivers, and of its lookups: for `once` or `check`."""
        columns = self.lake.columns
        return self._run(add_running_sums(follow_columns(self.table, columns), columns), drivers, past=past)

    def _run(self, table: LayerTable, drivers: Mapping[TableName, Rows], *, past: Collection[TableName]) -> DataFrame:
        rows = {**self.lookups(drivers, past=past), **drivers}
        if not isinstance(table.source, Query):  # a function may compute what it is given
            return run_source(self.lake.spark, table, {name: each.frame for name, each in rows.items()})
        frames = {name: self.frame(str(name), each) for name, each in rows.items()}
        if not frames:
            return run_source(self.lake.spark, table, {})
        first, *others = frames.values()

        def run(*given: DataFrame) -> DataFrame:
            return run_source(self.lake.spark, table, dict(zip(frames, given, strict=True)))

        return derive(first, ("run", table.table, table.source.text), run, *others)
