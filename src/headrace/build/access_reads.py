"""What a small build would read of each table, and by which columns it finds the rows: known without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.build.access import lookup_paths
from headrace.build.local_inputs import SMALL_LOOKUP
from headrace.build.local_tables import is_comparable
from headrace.build.plan import TablePlan
from headrace.build.reads import Read, StoredColumns
from headrace.build.strategies.registry import strategy_of
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import BuildLedger, InputState
from headrace.iceberg.schema.columns import arrow_schema
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.sql.join_paths import TEXT, JoinPath


def list_reads(catalog: Catalog, pipeline: Pipeline, plan: TablePlan, known: StoredColumns) -> tuple[Read, ...]:
    """Return what a build that follows changes reads: its drivers, its lookups, and the table's own rows.

    By which columns rows are found is left out where an input was never built, so that its columns are not known.
    """
    reads = [*_drivers(catalog, pipeline, plan, known), *_lookups(catalog, pipeline, plan, known)]
    if plan.table.keys:
        reads.append(Read(plan.table.table, "itself", plan.rows, columns=plan.table.keys, values="the touched keys"))
    return tuple(reads)


def changed_rows(table: Table | None, since: InputState, until: InputState) -> int:
    """Return how many rows came or changed between two points of an input's life, as its snapshots say.

    Where the snapshot that was read last is gone, it is by how much the table has grown.
    """
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0) if table else []
    last = next((index for index, each in enumerate(snapshots) if each.snapshot_id == since.snapshot_id), None)
    if last is None and since.snapshot_id is not None:
        return max(0, until.rows - since.rows)
    return sum(_rows_of(each) for each in snapshots[0 if last is None else last + 1 :])


def _rows_of(snapshot: Snapshot) -> int:
    """Return the rows that a checkpoint landed or a build changed; other snapshots, such as compaction's, bring none."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    if build_ledger.KEY in summary:
        return BuildLedger.from_json(summary[build_ledger.KEY]).rows_written
    return int(summary.get("added-records", 0)) if ledger.KEY in summary else 0


def _drivers(catalog: Catalog, pipeline: Pipeline, plan: TablePlan, known: StoredColumns) -> Iterator[Read]:
    table = plan.table
    for name in table.drivers:
        rows, changed = plan.until[name].rows, _changed(catalog, plan, name)
        read = Read(name, "driver", rows, changed, built_first=name in plan.after)
        yield strategy_of(table).driver_read(read, plan, pipeline, known)


def _lookups(catalog: Catalog, pipeline: Pipeline, plan: TablePlan, known: StoredColumns) -> Iterator[Read]:
    table = plan.table
    if not table.lookups:
        return
    if not known.has_inputs(table):
        yield from (Read(name, "lookup", plan.until[name].rows) for name in table.lookups)
        return
    paths = lookup_paths(known, table)
    for name in paths.order:
        rows = plan.until[name].rows
        followed = name in table.followed
        changed = _changed(catalog, plan, name) if followed else None
        ways = paths.lookups[name]
        read = Read(name, "lookup", rows, changed, most=SMALL_LOOKUP, built_first=followed and name in plan.after)
        if rows <= SMALL_LOOKUP:
            yield replace(read, whole=f"it has at most {SMALL_LOOKUP:,}")
        elif ways is None:
            yield replace(read, whole=paths.reasons[name])
        else:
            for way in ways:
                different = _different_types(way, known)
                values = f"{', '.join(way.source_columns)} of {way.source}"
                yield replace(read, whole=different) if different else replace(read, columns=way.columns, values=values)


def _different_types(way: JoinPath, known: StoredColumns) -> str:
    """Return which columns only Spark can compare, in words; nothing where there are none."""
    wanted = {column.name: column for column in known.columns[way.table]}
    have = {column.name: column for column in known.columns[way.source]}
    for name, source in zip(way.columns, way.source_columns, strict=True):
        if name.endswith(TEXT) or source.endswith(TEXT):
            continue
        types = arrow_schema((have[source],)).field(0).type, arrow_schema((wanted[name],)).field(0).type
        if not is_comparable(*types):
            return f"{name} is {wanted[name].type}, and {source} of {way.source} is {have[source].type}"
    return ""


def _changed(catalog: Catalog, plan: TablePlan, name: TableName) -> int:
    return changed_rows(load_table(catalog, name), plan.since[name], plan.until[name])
