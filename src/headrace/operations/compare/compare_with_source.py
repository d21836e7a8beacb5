"""The lake against Postgres: every row and column of the tables that say how a captured table stands."""

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
from headrace.operations.compare.catching_up import CdcPath, tables_on_the_way, wait_for_tables, wait_for_topics
from headrace.operations.compare.differences import Counted, Difference, Layout, compare_found, compare_in_order
from headrace.operations.compare.lake_tables import LSN
from headrace.operations.compare.source_tables import Key, Moment, SourceTable, find_table, open_moment
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
_LOOKED_AT_AGAIN = 10_000
"""How many rows of a table are looked at again; more than that do not differ because they are moving."""
_SHOWN = 5


@dataclass(frozen=True)
class Compared:
    """How a table of Postgres and its table of the lake compare.

    `rows` were compared, and of them `different` differ, or are on one side only. `moving` changed again whenever they were
    looked at, so that nothing can be said of them. `problems` are those of the table as a whole. `notes` are worth knowing,
    and no difference.
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
    """A captured table, and the lake's table of its rows as they stand."""

    stream: Stream
    table: LayerTable

    @property
    def source(self) -> tuple[str, str]:
        """The schema and the name of the table in Postgres, with which Debezium ends its topics' names."""
        _, schema, name = f".{self.stream.topic}".rsplit(".", 2)
        return schema, name


def pairs_of(pipeline: Pipeline) -> tuple[Pair, ...]:
    """Return each captured table with the table that keeps its current rows: the upsert that reads its changes alone."""
    found: list[Pair] = []
    for stream in pipeline.streams:
        if stream.format != "debezium":
            continue
        same = {stream.table}
        for table in pipeline.tables:
            if set(table.inputs) <= same and table.kind == "append":
                same.add(table.table)
            elif set(table.inputs) <= same and table.kind == "upsert":
                found.append(Pair(stream, table))
                break
    return tuple(found)


def compare_captured(
    settings: Settings, pipeline: Pipeline, *, bootstrap_servers: KafkaServers, report: Report, seconds: float = WAIT_SECONDS
) -> tuple[Compared, ...]:
    """Return how the tables of the Postgres that a pipeline captures compare with the lake, with its connector running
    meanwhile; nothing for one that captures none."""
    with capturing(settings, pipeline, report=report) as capture:
        if capture is None:
            return ()
        database = find_database(settings, capture.capture)
        if database is None:
            raise UnavailableError("Postgres has just ended", where=pipeline.name, next_step="Run: headrace status")
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
    """Return how every captured table compares with the lake, once the lake has what Postgres had at the beginning.

    Where no application lands the pipeline, this does. Rows that differ are looked at again with a newer state of Postgres
    and of the lake, because they may have changed in between, until they are the same, or stand still and differ, or `seconds`
    are over.
    """
    pairs = pairs_of(pipeline)
    if not pairs:
        raise SpecError(
            "no table of the pipeline says how a captured table stands",
            where=f"pipeline {pipeline.name}",
            next_step="Add one for each table to its folder: keys, sequence_by and SELECT * from its stage table.",
        )
    way = CdcPath(
        pipeline,
        dsn,
        slot=pipeline.name,
        bootstrap_servers=bootstrap_servers,
        streams=tuple(pair.stream for pair in pairs),
        tables=tables_on_the_way(pipeline, [pair.table for pair in pairs]),
    )
    deadline = time.monotonic() + seconds
    with _following(settings, way, report=report) as follow:
        with open_moment(dsn) as moment:
            follow(moment.lsn, deadline - time.monotonic())
            looks = [_look_at(settings, pair, moment) for pair in pairs]
        while any(look.unsettled for look in looks) and time.monotonic() < deadline:
            with open_moment(dsn) as moment:
                try:
                    follow(moment.lsn, deadline - time.monotonic())
                except LandingError:  # out of time: what was seen so far is what can be said
                    break
                looks = [look.again(settings, moment) for look in looks]
    return tuple(look.result(pipeline) for look in looks)


@contextmanager
def _following(settings: Settings, way: CdcPath, *, report: Report) -> Iterator[Callable[[int, float], None]]:
    """Yield what brings the lake up to an LSN: by waiting for the application that lands the pipeline, or by landing itself."""
    catalog = find_catalog(settings)
    with ExitStack() as stack:
        session: Session | None = None

        def follow(lsn: int, seconds: float) -> None:
            nonlocal session
            ends = wait_for_topics(way, lsn, seconds=max(1.0, seconds))
            if session is None and is_running(settings, way.pipeline.name):
                wait_for_tables(way, ends, catalog=catalog, seconds=max(1.0, seconds))
                return
            if session is None:
                session = stack.enter_context(landing_session(settings, way.pipeline, report=report))
            land(session, once=True, stop=Event(), landed=lambda batch: None, report=report)
            outcomes = build(open_lake(settings, way.pipeline, session.spark))
            failed = next((each.error for each in outcomes if each.error), None)
            if failed:
                raise failed

        yield follow


@dataclass(frozen=True)
class _Look:
    """What was seen of a table: the differing keys that are to be looked at again, and how they differed."""

    pair: Pair
    source: SourceTable
    rows: int
    found: tuple[Difference, ...]
    beyond: int
    settled: frozenset[Key]
    lsn: int
    notes: tuple[str, ...]

    @property
    def unsettled(self) -> bool:
        return any(each.key not in self.settled for each in self.found)

    def again(self, settings: Settings, moment: Moment) -> _Look:
        """Return another look at what differed. What differs in the same way twice, with no newer change, differs."""
        if not self.unsettled:
            return self
        catalog = find_catalog(settings)
        schema, name = self.pair.source
        source = find_table(moment.connection, schema, name) or self.source
        layout = _layout(catalog, self.pair, source)
        wanted = [each.key for each in self.found]
        ours = source_tables.find_rows(moment, source, keys=layout.source_keys, wanted=wanted)
        theirs = lake_tables.find_rows(
            _loaded(catalog, self.pair),
            columns=layout.in_lake,
            keys=layout.keys,
            wanted=wanted,
            scratch=settings.home / "scratch",
        )
        before = {each.key: each for each in self.found}
        found = tuple(compare_found(ours, theirs, layout=layout, wanted=wanted))
        still = frozenset(each.key for each in found if each == before[each.key] and each.lsn <= self.lsn)
        return _Look(self.pair, source, self.rows, found, self.beyond, still, moment.lsn, self.notes)

    def result(self, pipeline: Pipeline) -> Compared:
        different = [each for each in self.found if each.key in self.settled]
        columns = Counter(name for each in different for name in each.columns)
        filled = [column.name for column in self.source.columns if column.filled and columns[column.name]]
        step = None
        if filled:
            step = (
                f"Postgres gave rows the default of {', '.join(filled)} without a change that could be read. "
                f"Take a new snapshot: headrace connectors reset {pipeline.name}"
            )
        elif different or self.beyond:
            step = f"Take a new snapshot: headrace connectors reset {pipeline.name}"
        return Compared(
            source=str(self.source),
            table=str(self.pair.table.table),
            rows=self.rows,
            different=len(different) + self.beyond,
            moving=len(self.found) - len(different),
            columns=tuple(sorted(columns.items())),
            examples=tuple(_describe(each, self.pair.table.keys) for each in different[:_SHOWN]),
            notes=self.notes,
            next_step=step,
        )


def _look_at(settings: Settings, pair: Pair, moment: Moment) -> _Look:
    catalog = find_catalog(settings)
    schema, name = pair.source
    source = find_table(moment.connection, schema, name)
    if source is None:
        raise LandingError(
            f"Postgres has no table {schema}.{name}",
            where=f"topic {pair.stream.topic}",
            next_step="Take the stream out of pipeline.yml, or make the table.",
        )
    table = _loaded(catalog, pair)
    layout = _layout(catalog, pair, source)
    ours = Counted(source_tables.rows_in_order(moment, source, keys=layout.source_keys))
    theirs = lake_tables.rows_in_order(table, columns=layout.in_lake, keys=layout.keys, scratch=settings.home / "scratch")
    differences = compare_in_order(ours, theirs, layout=layout)
    found = tuple(islice(differences, _LOOKED_AT_AGAIN))
    beyond = sum(1 for _ in differences)
    notes = _notes(source, [field.name for field in table.schema().fields])
    return _Look(pair, source, ours.count, found, beyond, frozenset(), moment.lsn, notes)


def _layout(catalog: Catalog, pair: Pair, source: SourceTable) -> Layout:
    names = [field.name for field in _loaded(catalog, pair).schema().fields]
    both = {each.in_lake for each in source.columns} & set(names)
    missing = [key for key in pair.table.keys if key not in both]
    if missing or LSN not in names:
        raise LandingError(
            f"{pair.table.table} can't be compared: {', '.join(missing or [LSN])} is not a column of both sides",
            where=str(pair.table.table),
            next_step="Give it the columns of its stage table: SELECT *",
        )
    return Layout.of(source.columns, names, keys=pair.table.keys)


def _notes(source: SourceTable, lake: Sequence[str]) -> tuple[str, ...]:
    have = {column.in_lake for column in source.columns}
    gone = [name for name in lake if name not in have and not name.startswith("_") and name not in RESERVED]
    lacking = [column.name for column in source.columns if column.in_lake not in lake]
    return (
        *(f"{source}: {name} is in the lake, and no longer in Postgres" for name in gone),
        *(f"{source}: no change has told the lake of column {name} yet" for name in lacking),
        *(f"{source}: {name} is generated by Postgres, and not compared" for name in source.generated),
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
