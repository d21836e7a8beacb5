"""How results look on a terminal, and as JSON or CSV where a script reads them."""

from __future__ import annotations

import base64
import csv
import dataclasses
import json
import sys
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.landing.history import LoggedFile
    from headrace.landing.verify import Verified
    from headrace.runs.demo import Shown
    from headrace.runs.doctor import Finding, SettingOrigin
    from headrace.runs.inspection import StreamStatus
    from headrace.services.status import ServiceStatus
    from headrace.settings import Settings
    from headrace.spec import Pipeline


def show_rows(console: Console, rows: pa.Table, *, as_json: bool = False, as_csv: bool = False) -> None:
    if as_json:
        _print_json([{name: row[name] for name in rows.column_names} for row in rows.to_pylist()])
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.column_names)
        writer.writerows([_as_text(value, null="") for value in row.values()] for row in rows.to_pylist())
    else:
        table = Table()
        for field in rows.schema:
            table.add_column(escape(field.name), justify="right" if _is_number(str(field.type)) else "left", overflow="fold")
        for row in rows.to_pylist():
            table.add_row(*(escape(_as_text(value, null="null")) for value in row.values()))
        console.print(table)
        console.print(f"{rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'}", highlight=False)


def show_demo(
    console: Console, shown: Sequence[Shown], verified: Sequence[Verified], *, settings: Settings, pipeline: Pipeline
) -> None:
    for one in shown:
        console.print(f"\n{one.about}", style="bold", highlight=False)
        console.print(f'headrace query "{one.sql}"', style="dim", highlight=False, markup=False, soft_wrap=True)
        show_rows(console, one.answer)
    console.print("\nThe lake against the topic, offset by offset", style="bold")
    show_verified(console, verified, as_json=False)
    console.print(f"\nThe tables are in {settings.warehouse}", highlight=False, soft_wrap=True)
    console.print(f"Next: headrace commits {pipeline.name}   headrace status   headrace run {pipeline.name}", highlight=False)


def show_verified(console: Console, verified: Sequence[Verified], *, as_json: bool) -> None:
    if as_json:
        _print_json([dataclasses.asdict(one) | {"holds": one.holds} for one in verified])
        return
    table = Table()
    table.add_column("stream")
    for column in ("topic", "landed", "bad", "waiting", "missing", "doubled", "unlogged"):
        table.add_column(column, justify="right")
    for one in verified:
        numbers = (one.in_topic, one.landed, one.quarantined, one.waiting, one.missing, one.doubled, one.unlogged)
        table.add_row(one.label, *(f"{number:,}" for number in numbers))
    console.print(table)
    for one in verified:
        for example in one.examples:
            console.print(example, highlight=False, markup=False, soft_wrap=True)


def show_commits(console: Console, files: Sequence[LoggedFile], *, as_json: bool) -> None:
    if as_json:
        _print_json(
            [
                {
                    **dataclasses.asdict(file.entry),
                    "state": file.state,
                    "table": file.table,
                    "rows": file.rows,
                    "offsets": {str(partition): list(span) for partition, span in file.offsets.items()},
                }
                for file in files
            ]
        )
        return
    table = Table()
    for column in ("checkpoint", "subtask", "state", "table", "rows", "offsets", "file"):
        table.add_column(column, justify="right" if column in ("checkpoint", "subtask", "rows") else "left", overflow="fold")
    for file in files:
        table.add_row(
            str(file.entry.checkpoint_id),
            str(file.entry.subtask),
            file.state,
            file.table,
            f"{file.rows:,}",
            " ".join(f"{partition}:{first}-{last}" for partition, (first, last) in file.offsets.items()),
            escape(Path(file.entry.s3_key).name),
        )
    console.print(table)
    committed = sum(file.state == "committed" for file in files)
    noun = "file" if len(files) == 1 else "files"
    console.print(f"{len(files)} {noun}: {committed} committed, {len(files) - committed} orphan or gone", highlight=False)


def show_status(console: Console, services: Sequence[ServiceStatus], streams: Sequence[StreamStatus], *, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "services": [dataclasses.asdict(service) for service in services],
                "streams": [{**vars(stream), "extras": dict(stream.extras)} for stream in streams],
            }
        )
        return
    table = Table()
    for column in ("service", "state", "address", "memory", "log"):
        table.add_column(column, justify="right" if column == "memory" else "left", overflow="fold")
    for service in services:
        memory = f"{service.memory_bytes >> 20} MB" if service.memory_bytes else ""
        table.add_row(service.name, service.state, service.address or "", memory, str(service.log or ""))
    console.print(table)
    table = Table()
    for column in ("stream", "table", "rows", "bad", "lag", "checkpoint", "last commit"):
        table.add_column(column, justify="right" if column in ("rows", "bad", "lag", "checkpoint") else "left")
    for stream in streams:
        table.add_row(
            stream.label,
            stream.table,
            f"{stream.rows:,}",
            f"{stream.quarantined:,}",
            "Kafka is off" if stream.lag is None else f"{stream.lag:,}",
            str(stream.checkpoint_id),
            stream.last_commit.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if stream.last_commit else "never",
        )
    console.print(table)
    for stream in streams:
        for name, count in sorted(stream.extras.items()):
            console.print(
                f'{stream.label}: "{name}" came {count:,} times and is not in the schema; it is kept in _extra',
                highlight=False,
                markup=False,
            )
        for partition, start, end in stream.gaps:
            console.print(
                f"{stream.label}: offsets {start} to {end - 1} of partition {partition} were gone and were accepted as a gap",
                highlight=False,
            )


def show_findings(console: Console, findings: Sequence[Finding], origins: Sequence[SettingOrigin], *, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "findings": [dataclasses.asdict(finding) for finding in findings],
                "settings": [dataclasses.asdict(origin) for origin in origins],
            }
        )
        return
    table = Table()
    for column in ("part", "state", "what was found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(finding.subject, finding.state, escape(finding.says))
    console.print(table)
    table = Table()
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for origin in origins:
        table.add_row(origin.name, escape(origin.value), escape(origin.origin))
    console.print(table)


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, default=_as_json, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _as_text(value, null="")


def _as_text(value: object, *, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc) if value.tzinfo else value
        return text.isoformat(sep=" ", timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value[:60].decode("utf-8", errors="backslashreplace") + ("…" if len(value) > 60 else "")
    if isinstance(value, (date, Decimal, Path)):
        return str(value)
    return str(value)


def _is_number(arrow_type: str) -> bool:
    return arrow_type.startswith(("int", "uint", "float", "double", "decimal"))
