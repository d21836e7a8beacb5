"""How far everything is, on a terminal and as JSON: the figures of the control room."""

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
    """Print the figures; `broken` are the pipelines that can't be loaded, each with what is wrong.

    With `verbose`, a further table says where the time of each table's last build went.
    """
    streams = [stream for each in pipelines for stream in each.streams]
    tables = [table for each in pipelines for table in each.tables]
    if as_json:
        print_json(
            {
                "services": [dataclasses.asdict(service) for service in services],
                "streams": [{**vars(stream), "extras": dict(stream.extras), "state": stream.state} for stream in streams],
                "published": [
                    {**dataclasses.asdict(table), "state": table.state} for each in pipelines for table in each.published
                ],
                "tables": [_table_json(each) for each in tables],
                "connectors": [dataclasses.asdict(each) for each in captured],
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
    published = [table for each in pipelines for table in each.published]
    if published:
        _show_published(console, published)
    for stream in streams:
        _show_oddities(console, stream)
    for each in tables:
        notes = describe_largest(each.table, each.largest_entity, each.largest_expected)
        for sentence in (*notes, *describe_weights(each.table, each.weights)):
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    for name, error in broken.items():
        console.print(f"\n{name} can't be loaded", style="bold", highlight=False, markup=False)
        console.print(str(error), highlight=False, markup=False, soft_wrap=True)


def _table_json(table: TableStatus) -> dict[str, object]:
    derived = {"bad_rows": table.bad_rows, "warnings": table.warnings, "state": table.state}
    return {**dataclasses.asdict(table), **derived}


def show_captured(console: Console, captured: Sequence[Captured], *, as_json: bool, brief: bool) -> None:
    """Print the connectors and how far their slots are behind; unless it is to be brief, also why one failed."""
    if as_json:
        print_json([dataclasses.asdict(each) for each in captured])
        return
    table = _table("connector", "pipeline", "state", "tasks", "slot", "slot's lag", numbers=("slot's lag",))
    for each in captured:
        tasks = ", ".join(task.state for task in each.status.tasks)
        name = "none" if each.slot is None else f"{each.slot.name}{'' if each.slot.active else ', not read'}"
        table.add_row(each.status.name, each.pipeline, each.status.state, tasks, name, _lag(each))
    console.print(table)
    for each in captured:
        for problem in () if brief else each.status.problems:
            console.print(f"{each.status.name} failed: {problem}", highlight=False, markup=False, soft_wrap=True)
        if each.slot is not None and each.slot.wal_status == "lost":
            console.print(
                f"{each.slot.name}: Postgres no longer has all that this slot has to read."
                f" Run: headrace connectors reset {each.pipeline}",
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
    watched = any(each.late_rows is not None for each in tables)
    carried = any(each.unknown_rows is not None for each in tables)
    more = (*(("watermark", "late rows") if watched else ()), *(("unknown values in",) if carried else ()))
    numbers = (*_TABLE, "late rows", "unknown values in")
    table = _table("table", "kind", *_TABLE, "last build", "failing in it", *more, numbers=numbers)
    for each in tables:
        late = "" if each.late_rows is None else f"{each.late_rows:,}"
        shown = (_moment(each.watermark) if each.watermark else "", late) if watched else ()
        unknown = "" if each.unknown_rows is None else f"{each.unknown_rows:,}"
        failing = f"{len(each.failing)} of {each.expectations} expectations" if each.failing else ""
        table.add_row(
            each.table,
            each.kind,
            f"{each.rows:,}",
            f"{each.rate:,.1f}",
            short_seconds(each.behind_seconds),
            short_seconds(each.freshness_seconds),
            _batch(each.batch_seconds),
            f"{each.quarantined:,}",
            f"{each.warnings:,}",
            str(each.build_id),
            _moment(each.last_build),
            failing,
            *shown,
            *((unknown,) if carried else ()),
        )
    console.print(table)


def _show_builds(console: Console, tables: Sequence[TableStatus]) -> None:
    table = _table("last build of", *_BUILD, numbers=_BUILD)
    for each in tables:
        phases = each.phases
        seconds = (phases.fetch, phases.query, phases.write, phases.commit) if phases else (None,) * 4
        rows = ("" if count is None else f"{count:,}" for count in (each.rows_in, each.rows_out))
        sizes = ("" if size is None else f"{size / 1_000_000:,.1f} MB" for size in (each.index_bytes, each.cached_row_bytes))
        table.add_row(each.table, *map(_milliseconds, seconds), *rows, *sizes)
    console.print(table)


def _show_published(console: Console, published: Sequence[PublishedStatus]) -> None:
    table = _table(
        *("in Postgres", "from", "rows", "behind", "freshness", "build", "last published"),
        numbers=("rows", "behind", "freshness", "build"),
    )
    for each in published:
        rows = "" if each.rows is None else f"{each.rows:,}"
        age = short_seconds(each.freshness_seconds)
        when = _moment(each.last_published) if each.last_published else "not known"
        behind = short_seconds(each.behind_seconds)
        table.add_row(each.table, each.source, rows, behind, age, str(each.build_id), when)
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
            f"{stream.label}: offsets {start} to {end - 1} of partition {partition} were gone and were accepted as a gap",
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
