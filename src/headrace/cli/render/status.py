"""Render status for a terminal and as JSON, with the figures of the control room."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.plurals import count_of
from headrace.serving.entity_notes import describe_largest, describe_weights
from headrace.serving.values import print_json, short_seconds

if TYPE_CHECKING:
    from headrace.errors import HeadraceError
    from headrace.servers.status import ServiceStatus
    from headrace.serving.figures import PipelineStatus, PublishedStatus, StreamStatus, TableStatus
    from headrace.sessions.capturing import Captured

_STREAM = ("rows", "rows/s", "lag", "freshness", "batch", "quarantined", "checkpoint")
_BUILD = ("fetch", "query", "write", "commit", "rows in", "rows out", "indexes", "cached")
_TABLE = ("rows", "rows/s", "behind", "freshness", "batch", "quarantined", "warnings", "build")


def show_status(
    console: Console,
    services: Sequence[ServiceStatus],
    pipelines: Sequence[PipelineStatus],
    *,
    captured: Sequence[Captured] = (),
    broken: Mapping[str, HeadraceError],
    as_json: bool,
    verbose: bool = False,
) -> None:
    """Print the figures. `broken` are the pipelines that can't be loaded, each with its error.

    With `verbose`, more tables show the phases of each table's last build, and how far back each table can be read.
    """
    streams = [stream for pipeline in pipelines for stream in pipeline.streams]
    tables = [table for pipeline in pipelines for table in pipeline.tables]
    if as_json:
        print_json(
            {
                "services": [dataclasses.asdict(service) for service in services],
                "streams": [{**vars(stream), "extras": dict(stream.extras), "state": stream.state} for stream in streams],
                "published": [
                    {**dataclasses.asdict(table), "state": table.state}
                    for pipeline in pipelines
                    for table in pipeline.published
                ],
                "tables": [_table_json(table) for table in tables],
                "connectors": [dataclasses.asdict(connector) for connector in captured],
                "broken": [
                    {"name": name, "what": error.what, "where": error.where, "next_step": error.next_step}
                    for name, error in broken.items()
                ],
            }
        )
        return
    _show_services(console, services)
    if captured:
        show_captured(console, captured, as_json=False, brief=True)
    _show_streams(console, streams)
    if tables:
        _show_layer_tables(console, tables)
    if tables and verbose:
        _show_builds(console, tables)
    if verbose:
        _show_histories(console, [*streams, *tables])
    published = [table for pipeline in pipelines for table in pipeline.published]
    if published:
        _show_published(console, published)
    for stream in streams:
        _show_oddities(console, stream)
    for status in tables:
        notes = describe_largest(status.table, status.largest_entity, status.largest_expected)
        for sentence in (*notes, *describe_weights(status.table, status.weights)):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    for name, error in broken.items():
        console.print(f"\n{name} can't be loaded", style="bold", highlight=False, markup=False)
        console.print(str(error), highlight=False, markup=False, soft_wrap=True)


def _table_json(table: TableStatus) -> dict[str, object]:
    derived = {"bad_rows": table.bad_rows, "warnings": table.warnings, "state": table.state}
    return {**dataclasses.asdict(table), **derived}


def show_captured(console: Console, captured: Sequence[Captured], *, as_json: bool, brief: bool) -> None:
    """Print the connectors and the lag of their slots; unless `brief`, also the errors of failed ones."""
    if as_json:
        print_json([dataclasses.asdict(connector) for connector in captured])
        return
    table = _table("connector", "pipeline", "state", "tasks", "slot", "slot's lag", numbers=("slot's lag",))
    for connector in captured:
        tasks = ", ".join(task.state for task in connector.status.tasks)
        name = "none" if connector.slot is None else f"{connector.slot.name}{'' if connector.slot.active else ', not read'}"
        table.add_row(connector.status.name, connector.pipeline, connector.status.state, tasks, name, _lag(connector))
    console.print(table)
    for connector in captured:
        for problem in () if brief else connector.status.problems:
            console.print(f"{connector.status.name} failed: {problem}", highlight=False, markup=False, soft_wrap=True)
        if connector.slot is not None and connector.slot.wal_status == "lost":
            console.print(
                f"{connector.slot.name}: Postgres has removed WAL that this slot still needs."
                f" Run: headrace connectors reset {connector.pipeline}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )


def _lag(captured: Captured) -> str:
    if captured.slot is None or captured.slot.lag_bytes is None:
        return ""
    return f"{captured.slot.lag_bytes:,} bytes"


def _show_services(console: Console, services: Sequence[ServiceStatus]) -> None:
    table = _table("service", "state", "address", "memory", "ready after", "log", numbers=("memory", "ready after"))
    for service in services:
        memory = f"{service.memory_bytes >> 20} MB" if service.memory_bytes else ""
        start = f"{service.start_seconds:.1f} s" if service.start_seconds is not None else ""
        table.add_row(service.name, service.state, service.address or "", memory, start, str(service.log or ""))
    console.print(table)


def _show_streams(console: Console, streams: Sequence[StreamStatus]) -> None:
    table = _table("stream", "table", *_STREAM, "last commit", numbers=_STREAM)
    for stream in streams:
        table.add_row(
            stream.label,
            stream.table,
            f"{stream.rows:,}",
            f"{stream.rate:,.1f}",
            "Kafka is off" if stream.lag is None else f"{stream.lag:,}",
            short_seconds(stream.freshness_seconds),
            _batch(stream.batch_seconds),
            f"{stream.quarantined:,}",
            str(stream.checkpoint_id),
            _moment(stream.last_commit),
        )
    console.print(table)


def _show_layer_tables(console: Console, tables: Sequence[TableStatus]) -> None:
    watched = any(table.late_rows is not None for table in tables)
    carried = any(table.unknown_rows is not None for table in tables)
    more = (*(("watermark", "late rows") if watched else ()), *(("rows with unknown values",) if carried else ()))
    numbers = (*_TABLE, "late rows", "rows with unknown values")
    table = _table("table", "kind", *_TABLE, "last build", "failing in it", *more, numbers=numbers)
    for status in tables:
        late = "" if status.late_rows is None else f"{status.late_rows:,}"
        shown = (_moment(status.watermark) if status.watermark else "", late) if watched else ()
        unknown = "" if status.unknown_rows is None else f"{status.unknown_rows:,}"
        failing = f"{len(status.failing)} of {status.expectations} expectations" if status.failing else ""
        table.add_row(
            status.table,
            status.kind,
            f"{status.rows:,}",
            f"{status.rate:,.1f}",
            short_seconds(status.behind_seconds),
            short_seconds(status.freshness_seconds),
            _batch(status.batch_seconds),
            f"{status.quarantined:,}",
            f"{status.warnings:,}",
            str(status.build_id),
            _moment(status.last_build),
            failing,
            *shown,
            *((unknown,) if carried else ()),
        )
    console.print(table)


def _show_builds(console: Console, tables: Sequence[TableStatus]) -> None:
    table = _table("last build of", *_BUILD, numbers=_BUILD)
    for status in tables:
        phases = status.phases
        seconds = (phases.fetch, phases.query, phases.write, phases.commit) if phases else (None,) * 4
        rows = ("" if count is None else f"{count:,}" for count in (status.rows_in, status.rows_out))
        sizes = (
            "" if size is None else f"{size / 1_000_000:,.1f} MB" for size in (status.index_bytes, status.cached_row_bytes)
        )
        table.add_row(status.table, *map(_milliseconds, seconds), *rows, *sizes)
    console.print(table)


def _show_histories(console: Console, statuses: Sequence[StreamStatus | TableStatus]) -> None:
    table = _table("history of", "readable since", "snapshots", numbers=("snapshots",))
    for status in statuses:
        table.add_row(status.table, _moment(status.readable_since), f"{status.snapshots:,}")
    console.print(table)


def _show_published(console: Console, published: Sequence[PublishedStatus]) -> None:
    table = _table(
        *("in Postgres", "from", "rows", "behind", "freshness", "build", "last published"),
        numbers=("rows", "behind", "freshness", "build"),
    )
    for status in published:
        rows = "" if status.rows is None else f"{status.rows:,}"
        age = short_seconds(status.freshness_seconds)
        when = _moment(status.last_published) if status.last_published else "not known"
        behind = short_seconds(status.behind_seconds)
        table.add_row(status.table, status.source, rows, behind, age, str(status.build_id), when)
    console.print(table)


def _show_oddities(console: Console, stream: StreamStatus) -> None:
    for name, count in sorted(stream.extras.items()):
        hold = f"{count_of(count, 'row')} {'holds' if count == 1 else 'hold'} it in _extra"
        console.print(
            f'{stream.label}: "{name}" is not in the schema; {hold}',
            highlight=False,
            markup=False,
        )
    for partition, start, end in stream.gaps:
        console.print(
            f"{stream.label}: offsets {start} to {end - 1} of partition {partition} were missing and accepted as a gap",
            highlight=False,
        )


def _table(*columns: str, numbers: Sequence[str]) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _batch(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.2f} s"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _moment(moment: datetime | None) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "never"
