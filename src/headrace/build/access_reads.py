"""List the reads of a small build, and the columns by which it looks rows up, without Spark."""

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
    """Return the reads of an incremental build: its drivers, its lookups, and the table's own rows.

    The lookup columns are omitted if an input was never built, because its columns are unknown.
    """
    reads = [*_drivers(catalog, pipeline, plan, known), *_lookups(catalog, pipeline, plan, known)]
    if plan.table.keys:
        reads.append(Read(plan.table.table, "itself", plan.rows, columns=plan.table.keys, values="the touched keys"))
    return tuple(reads)


def changed_rows(table: Table | None, since: InputState, until: InputState) -> int:
    """Return the number of rows added or changed between two states of an input, from its snapshot summaries.

    If the snapshot that was read last is expired, return the growth of the table.
    """
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0) if table else []
    ids = [snapshot.snapshot_id for snapshot in snapshots]
    last = ids.index(since.snapshot_id) if since.snapshot_id in ids else None
    if last is None and since.snapshot_id is not None:
        return max(0, until.rows - since.rows)
    return sum(_rows_of(snapshot) for snapshot in snapshots[0 if last is None else last + 1 :])


def _rows_of(snapshot: Snapshot) -> int:
    """Return the number of rows that a checkpoint landed or a build changed; 0 for other snapshots, such as compaction's."""
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
        routes = paths.lookups[name]
        read = Read(name, "lookup", rows, changed, most=SMALL_LOOKUP, built_first=followed and name in plan.after)
        if rows <= SMALL_LOOKUP:
            yield replace(read, whole=f"it has at most {SMALL_LOOKUP:,}")
        elif routes is None:
            yield replace(read, whole=paths.reasons[name])
        else:
            for route in routes:
                different = _different_types(route, known)
                values = f"{', '.join(route.source_columns)} of {route.source}"
                yield replace(read, whole=different) if different else replace(read, columns=route.columns, values=values)


def _different_types(route: JoinPath, known: StoredColumns) -> str:
    """Describe the columns of a join path that only Spark can compare; return an empty text if there are none."""
    wanted = {column.name: column for column in known.columns[route.table]}
    have = {column.name: column for column in known.columns[route.source]}
    for name, source in zip(route.columns, route.source_columns, strict=True):
        if name.endswith(TEXT) or source.endswith(TEXT):
            continue
        types = arrow_schema((have[source],)).field(0).type, arrow_schema((wanted[name],)).field(0).type
        if not is_comparable(*types):
            return f"{name} is {wanted[name].type}, and {source} of {route.source} is {have[source].type}"
    return ""


def _changed(catalog: Catalog, plan: TablePlan, name: TableName) -> int:
    return changed_rows(load_table(catalog, name), plan.since[name], plan.until[name])
