"""Compare the lake with Postgres: every row and column of the tables with a captured table's current rows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Event

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import LandingError, SpecError, UnavailableError
from headrace.iceberg.catalog.tables import find_catalog, load_table
from headrace.kafka.client import KafkaServers
from headrace.operations.compare import lake_tables, source_tables
from headrace.operations.compare.catching_up import CdcPath, wait_for_tables, wait_for_topics, with_upstream
from headrace.operations.compare.differences import Counted, Difference, Layout, compare_by_key, compare_in_order
from headrace.operations.compare.lake_tables import LSN
from headrace.operations.compare.source_tables import Key, SourceSnapshot, SourceTable, find_table, open_snapshot
from headrace.servers.embedded import Report
from headrace.servers.source_database import find_database
from headrace.sessions.building import build, open_lake
from headrace.sessions.capturing import capturing
from headrace.sessions.landing import Session, land, landing_session
from headrace.sessions.lock import is_running
from headrace.settings import Settings
from headrace.spec.model.columns import RESERVED
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, Stream

WAIT_SECONDS = 300.0
_MOST_RECHECKED = 10_000
"""Differing rows that are rechecked. If more rows differ, concurrent changes are not the reason."""
_SHOWN = 5


@dataclass(frozen=True)
class Compared:
    """The comparison of a Postgres table with its lake table.

    Of the compared `rows`, `different` differ or are on one side only. `moving` rows changed again before every recheck, so
    their result is unknown. `problems` concern the whole table. `notes` are not differences.
    """

    source: str
    table: str
    rows: int
    different: int = 0
    moving: int = 0
    columns: tuple[tuple[str, int], ...] = ()
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    next_step: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not (self.different or self.moving or self.problems)


@dataclass(frozen=True)
class Pair:
    """A captured table, and the lake table with its current rows."""

    stream: Stream
    table: LayerTable

    @property
    def source(self) -> tuple[str, str]:
        """The schema and name of the table in Postgres, which are the end of Debezium's topic name."""
        _, schema, name = f".{self.stream.topic}".rsplit(".", 2)
        return schema, name


def pairs_of(pipeline: Pipeline) -> tuple[Pair, ...]:
    """Return each captured table with the table of its current rows: the upsert table that reads only its changes."""
    pairs: list[Pair] = []
    for stream in pipeline.streams:
        if stream.format != "debezium":
            continue
        same = {stream.table}
        for table in pipeline.tables:
            if set(table.inputs) <= same and table.kind == "append":
                same.add(table.table)
            elif set(table.inputs) <= same and table.kind == "upsert":
                pairs.append(Pair(stream, table))
                break
    return tuple(pairs)


def compare_captured(
    settings: Settings, pipeline: Pipeline, *, bootstrap_servers: KafkaServers, report: Report, seconds: float = WAIT_SECONDS
) -> tuple[Compared, ...]:
    """Return the comparison of the Postgres tables that a pipeline captures with the lake; empty if it captures none.

    The pipeline's connector runs meanwhile.
    """
    with capturing(settings, pipeline, report=report) as capture:
        if capture is None:
            return ()
        database = find_database(settings, capture.capture)
        if database is None:
            raise UnavailableError("Postgres stopped", where=pipeline.name, next_step="Run: headrace status")
        servers, dsn = bootstrap_servers, database.dsn
        return compare(settings, pipeline, dsn=dsn, bootstrap_servers=servers, report=report, seconds=seconds)


def compare(
    settings: Settings,
    pipeline: Pipeline,
    *,
    dsn: str,
    bootstrap_servers: KafkaServers,
    report: Report,
    seconds: float = WAIT_SECONDS,
) -> tuple[Compared, ...]:
    """Return the comparison of every captured table with the lake, once the lake has all changes up to the start.

    If no application lands the pipeline, this function does. Rows that differ may have changed in between: they are rechecked
    with newer snapshots until they are equal, or differ without a newer change, or `seconds` are over.
    """
    pairs = pairs_of(pipeline)
    if not pairs:
        raise SpecError(
            "no table of the pipeline has the current rows of a captured table",
            where=f"pipeline {pipeline.name}",
            next_step="Add an upsert table for each captured table: keys, sequence_by and SELECT * from its stage table.",
        )
    path = CdcPath(
        pipeline,
        dsn,
        slot=pipeline.name,
        bootstrap_servers=bootstrap_servers,
        streams=tuple(pair.stream for pair in pairs),
        tables=with_upstream(pipeline, [pair.table for pair in pairs]),
    )
    deadline = time.monotonic() + seconds
    with _following(settings, path, report=report) as follow:
        with open_snapshot(dsn) as snapshot:
            follow(snapshot.lsn, deadline - time.monotonic())
            comparisons = [_compare_table(settings, pair, snapshot) for pair in pairs]
        while any(comparison.unsettled for comparison in comparisons) and time.monotonic() < deadline:
            with open_snapshot(dsn) as snapshot:
                try:
                    follow(snapshot.lsn, deadline - time.monotonic())
                except LandingError:  # out of time: report the results so far
                    break
                comparisons = [comparison.recheck(settings, snapshot) for comparison in comparisons]
    return tuple(comparison.result(pipeline) for comparison in comparisons)


@contextmanager
def _following(settings: Settings, path: CdcPath, *, report: Report) -> Iterator[Callable[[int, float], None]]:
    """Yield a function that brings the lake up to an LSN: it waits for the running application, or lands and builds."""
    catalog = find_catalog(settings)
    with ExitStack() as stack:
        session: Session | None = None

        def follow(lsn: int, seconds: float) -> None:
            nonlocal session
            ends = wait_for_topics(path, lsn, seconds=max(1.0, seconds))
            if session is None and is_running(settings, path.pipeline.name):
                wait_for_tables(path, ends, catalog=catalog, seconds=max(1.0, seconds))
                return
            if session is None:
                session = stack.enter_context(landing_session(settings, path.pipeline, report=report))
            land(session, once=True, stop=Event(), landed=lambda batch: None, report=report)
            outcomes = build(open_lake(settings, path.pipeline, session.spark))
            failed = next((outcome.error for outcome in outcomes if outcome.error), None)
            if failed:
                raise failed

        yield follow


@dataclass(frozen=True)
class _Comparison:
    """The state of a table's comparison: its differences, and the keys that are settled."""

    pair: Pair
    source: SourceTable
    rows: int
    differences: tuple[Difference, ...]
    unchecked: int
    settled: frozenset[Key]
    lsn: int
    notes: tuple[str, ...]

    @property
    def unsettled(self) -> bool:
        return any(difference.key not in self.settled for difference in self.differences)

    def recheck(self, settings: Settings, snapshot: SourceSnapshot) -> _Comparison:
        """Recheck the differences. A row that differs twice in the same way, without a newer change, is settled."""
        if not self.unsettled:
            return self
        catalog = find_catalog(settings)
        schema, name = self.pair.source
        source = find_table(snapshot.connection, schema, name) or self.source
        layout = _layout(catalog, self.pair, source)
        wanted = [difference.key for difference in self.differences]
        source_rows = source_tables.find_rows(snapshot, source, keys=layout.source_keys, wanted=wanted)
        lake_rows = lake_tables.find_rows(
            _loaded(catalog, self.pair),
            columns=layout.in_lake,
            keys=layout.keys,
            wanted=wanted,
            scratch=settings.home / "scratch",
        )
        before = {difference.key: difference for difference in self.differences}
        differences = tuple(compare_by_key(source_rows, lake_rows, layout=layout, wanted=wanted))
        still = frozenset(
            difference.key for difference in differences if difference == before[difference.key] and difference.lsn <= self.lsn
        )
        return _Comparison(self.pair, source, self.rows, differences, self.unchecked, still, snapshot.lsn, self.notes)

    def result(self, pipeline: Pipeline) -> Compared:
        different = [difference for difference in self.differences if difference.key in self.settled]
        columns = Counter(name for difference in different for name in difference.columns)
        filled = [column.name for column in self.source.columns if column.filled and columns[column.name]]
        step = None
        if filled:
            step = (
                f"Postgres filled the default of {', '.join(filled)} into existing rows without change events. "
                f"Take a new snapshot: headrace connectors reset {pipeline.name}"
            )
        elif different or self.unchecked:
            step = f"Take a new snapshot: headrace connectors reset {pipeline.name}"
        return Compared(
            source=str(self.source),
            table=str(self.pair.table.table),
            rows=self.rows,
            different=len(different) + self.unchecked,
            moving=len(self.differences) - len(different),
            columns=tuple(sorted(columns.items())),
            examples=tuple(_describe(difference, self.pair.table.keys) for difference in different[:_SHOWN]),
            notes=self.notes,
            next_step=step,
        )


def _compare_table(settings: Settings, pair: Pair, snapshot: SourceSnapshot) -> _Comparison:
    catalog = find_catalog(settings)
    schema, name = pair.source
    source = find_table(snapshot.connection, schema, name)
    if source is None:
        raise LandingError(
            f"Postgres has no table {schema}.{name}",
            where=f"topic {pair.stream.topic}",
            next_step="Remove the stream from pipeline.yml, or create the table.",
        )
    table = _loaded(catalog, pair)
    layout = _layout(catalog, pair, source)
    source_rows = Counted(source_tables.rows_in_order(snapshot, source, keys=layout.source_keys))
    lake_rows = lake_tables.rows_in_order(table, columns=layout.in_lake, keys=layout.keys, scratch=settings.home / "scratch")
    all_differences = compare_in_order(source_rows, lake_rows, layout=layout)
    differences = tuple(islice(all_differences, _MOST_RECHECKED))
    unchecked = sum(1 for _ in all_differences)
    notes = _notes(source, [field.name for field in table.schema().fields])
    return _Comparison(pair, source, source_rows.count, differences, unchecked, frozenset(), snapshot.lsn, notes)


def _layout(catalog: Catalog, pair: Pair, source: SourceTable) -> Layout:
    names = [field.name for field in _loaded(catalog, pair).schema().fields]
    both = {column.in_lake for column in source.columns} & set(names)
    missing = [key for key in pair.table.keys if key not in both]
    if missing or LSN not in names:
        raise LandingError(
            f"can't compare {pair.table.table}: both sides need the column {', '.join(missing or [LSN])}",
            where=str(pair.table.table),
            next_step="Give it the columns of its stage table: SELECT *",
        )
    return Layout.of(source.columns, names, keys=pair.table.keys)


def _notes(source: SourceTable, lake: Sequence[str]) -> tuple[str, ...]:
    have = {column.in_lake for column in source.columns}
    gone = [name for name in lake if name not in have and not name.startswith("_") and name not in RESERVED]
    lacking = [column.name for column in source.columns if column.in_lake not in lake]
    return (
        *(f"{source}: column {name} is in the lake, but no longer in Postgres" for name in gone),
        *(f"{source}: column {name} is not in the lake yet, because no change event had it" for name in lacking),
        *(f"{source}: column {name} is generated by Postgres and not compared" for name in source.generated),
    )


def _loaded(catalog: Catalog, pair: Pair) -> Table:
    table = load_table(catalog, pair.table.table)
    if table is None:
        raise LandingError(
            f"{pair.table.table} was never built",
            where=f"table {pair.table.table}",
            next_step="Build it: headrace build",
        )
    return table


def _describe(difference: Difference, keys: Sequence[str]) -> str:
    key = ", ".join(f"{name} {value}" for name, value in zip(keys, difference.key, strict=True))
    if difference.columns:
        return f"{key}: {', '.join(difference.columns)}"
    return f"{key}: {'only in the lake' if difference.lsn else 'only in Postgres'}"
