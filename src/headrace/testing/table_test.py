"""Test one table of a pipeline: give rows of its inputs, build it, and expect its rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from headrace.build.analysis import analyse
from headrace.errors import QualityError, SpecError
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.ledgers.build import CheckedExpectation
from headrace.iceberg.schema.required import RequiredNullError
from headrace.sessions.building import Outcome, choose_tables
from headrace.spec import load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Stream, TableName
from headrace.spec.model.types import Column
from headrace.testing.differences import describe_differences
from headrace.testing.isolated import NUMBER, PREFIX, REMOVED, Isolated, isolate, resolve_input, row_key, upstream_of
from headrace.testing.isolated_lake import IsolatedLake, settings_of
from headrace.testing.spark import shared_session
from headrace.testing.values import Row, convert_row

Given = Mapping[str, Sequence[Mapping[str, object]]]
_NOTHING: Given = MappingProxyType({})


class TableTest:
    """One table of a pipeline, in a lake of its own in a temporary folder. It needs no broker and reads no settings.

    `pipeline` is a name or the path of a folder, `table` a name with or without its namespace. All tests of a process share one
    Spark session. `environ` replaces the environment variables that the pipeline's files read.
    """

    def __init__(self, pipeline: str | Path, table: str, *, environ: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environ is None else environ
        self._pipeline = load_pipeline(str(pipeline), environ=variables, folder=Path.cwd())
        self._table = choose_tables(self._pipeline, table)[-1]
        self._where = f"test of {self._table.table}"
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-test-", ignore_cleanup_errors=True)
        self._isolated: Isolated | None = None
        self._lake: IsolatedLake | None = None
        self._columns: Mapping[TableName, tuple[Column, ...]] = {}
        self._landed: list[tuple[Stream, list[Row]]] = []
        self._failed: dict[str, int] = {}

    def build(self, given: Given, *, removed: Given = _NOTHING) -> None:
        """Add rows to the inputs, by their names, and build the table.

        An input is a raw table or any other upstream table; tables between the given ones and this one are built, too. A row
        needs only the columns that matter, and text may stand for times, dates and decimals. Of a layer table with keys, a row
        replaces the one with the same key, and `removed` names keys whose row disappears.

        Every call after the first is an incremental build. It raises an AssertionError unless the table has the rows that one
        build of all given rows gives. Raises a SpecError for an unknown table or column, and the error of a table that can't be
        built, except for rows that fail an expectation: see `failed`.
        """
        isolated = self._isolate({*given, *removed})
        lake = self._lake or self._new_lake(isolated, "lake")
        is_first, self._lake = self._lake is None, lake
        for change, is_removed in ((given, False), (removed, True)):
            for name, rows in change.items():
                stream, converted = self._read(isolated, name, rows, is_removed=is_removed)
                self._append(lake, stream, converted)
                self._landed.append((stream, converted))
        refused = self._note(lake.build())
        if not is_first and not refused:
            self._check_increment(isolated, lake)

    @property
    def rows(self) -> list[Row]:
        """The rows of the table, in no particular order."""
        return self._lake.rows(self._table.table) if self._lake else []

    @property
    def failed(self) -> Mapping[str, int]:
        """The number of rows that failed each expectation in the last build; expectations that all rows met are left out."""
        return dict(self._failed)

    def expect(self, rows: Sequence[Mapping[str, object]], *, failed: Mapping[str, int] = MappingProxyType({})) -> None:
        """Raise an AssertionError unless the table has these rows, and these failed expectations.

        The order does not matter. Only the columns that the expected rows name are compared.
        """
        columns = self._columns.get(self._table.table, ())
        names = tuple(dict.fromkeys(name for row in rows for name in row)) or tuple(column.name for column in columns)
        wanted = [convert_row(row, columns, where=self._where) for row in rows]
        differences = describe_differences(
            [{name: row.get(name) for name in names} for row in wanted],
            [{name: row[name] for name in names} for row in self.rows],
            labels=("expected", "found"),
        )
        if self.failed != dict(failed):
            differences += f"\nfailed expectations: expected {dict(failed)}, found {self.failed}"
        if differences:
            raise AssertionError(f"{self._table.table} differs:{differences}")

    def close(self) -> None:
        """Remove the temporary folder."""
        self._folder.cleanup()

    def __enter__(self) -> TableTest:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _isolate(self, names: set[str]) -> Isolated:
        """Return the isolated pipeline, which the tables of the first call decide."""
        upstream = upstream_of(self._pipeline, self._table.table)
        given = {resolve_input(name, upstream, where=self._where) for name in names}
        if self._isolated is None:
            self._columns = self._analyse()
            self._isolated = isolate(self._pipeline, self._table, given, self._columns)
        late = sorted(str(name) for name in given if str(name) not in self._isolated.streams)
        if late:
            what = f"{late[0]} was not given in the first build, so it is built or not read"
            raise SpecError(what, where=self._where, next_step=f'Give it in the first build, too: {{"{late[0]}": []}}')
        return self._isolated

    def _analyse(self) -> Mapping[TableName, tuple[Column, ...]]:
        tables = choose_tables(self._pipeline, str(self._table.table))
        session = open_spark_catalog(shared_session(), settings_of(Path(self._folder.name)), rows="few")
        landed = {stream.table: landed_columns(stream) for stream in self._pipeline.streams}
        return analyse(session, replace(self._pipeline, tables=tables), landed)

    def _new_lake(self, isolated: Isolated, name: str) -> IsolatedLake:
        folder = Path(self._folder.name) / name
        folder.mkdir()
        return IsolatedLake(isolated.pipeline, folder=folder, spark=shared_session())

    def _read(
        self, isolated: Isolated, name: str, rows: Sequence[Mapping[str, object]], *, is_removed: bool
    ) -> tuple[Stream, list[Row]]:
        """Return the stream of an input, and the raw rows for given rows."""
        table = resolve_input(name, upstream_of(self._pipeline, self._table.table), where=self._where)
        stream = isolated.streams[str(table)]
        converted = [convert_row(row, self._columns[table], where=f"{self._where}, rows of {table}") for row in rows]
        if str(table) in isolated.stand_ins:
            return stream, self._stand_in_rows(table, stream, converted, is_removed=is_removed)
        if is_removed:
            what = f"rows of the raw table {table} can't be removed"
            raise SpecError(what, where=self._where, next_step="Give the message that removes them.")
        return stream, converted

    def _append(self, lake: IsolatedLake, stream: Stream, rows: list[Row]) -> None:
        try:
            lake.append(stream, rows)
        except RequiredNullError as error:
            where = f"{self._where}, rows of {stream.table}"
            raise SpecError(str(error), where=where, next_step="Give the column a value: the schema says NOT NULL.") from error

    def _stand_in_rows(self, table: TableName, stream: Stream, rows: list[Row], *, is_removed: bool) -> list[Row]:
        keys = row_key(next(other for other in self._pipeline.tables if other.table == table))
        if is_removed and not keys:
            raise SpecError(f"rows of {table}, which has no keys, can't be removed", where=self._where)
        first = sum(len(earlier) for other, earlier in self._landed if other == stream)
        return [
            {**{f"{PREFIX}{name}": value for name, value in row.items()}, NUMBER: first + index, REMOVED: is_removed}
            for index, row in enumerate(rows)
        ]

    def _note(self, outcomes: Sequence[Outcome]) -> bool:
        """Note the table's failed expectations, and return whether they stopped the build. Raise any other error."""
        outcome = next(outcome for outcome in outcomes if outcome.table.table == self._table.table)
        for other in outcomes:
            if other.error and (other is not outcome or not isinstance(other.error, QualityError)):
                raise other.error
        results: Sequence[object] = ()
        if isinstance(outcome.error, QualityError):
            results = outcome.error.results
        elif outcome.built:
            results = outcome.built.entry.expectations
        checked = [result for result in results if isinstance(result, CheckedExpectation)]
        self._failed = {result.sentence: result.failed for result in checked if result.failed}
        return outcome.error is not None

    def _check_increment(self, isolated: Isolated, lake: IsolatedLake) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder.name) as name:
            at_once = self._new_lake(isolated, Path(name).name + "-at-once")
            for stream, rows in self._landed:
                at_once.append(stream, rows)
            at_once.build()
            name_of_table = self._table.table
            differences = describe_differences(
                at_once.rows(name_of_table), lake.rows(name_of_table), labels=("in one build", "in increments")
            )
        if differences:
            raise AssertionError(
                f"{self._table.table} depends on when it is built: one build of all given rows gives other rows{differences}"
            )
