"""What a small build would read of each table, and by which columns it finds the rows: known without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.build.access import driver_keys, lookup_paths, time_keys
from headrace.build.growth import columns_landed
from headrace.build.local_inputs import SMALL_LOOKUP
from headrace.build.local_tables import MOST_ROWS, is_comparable
from headrace.build.plan import TablePlan
from headrace.build.pruning import KeySource, same_key
from headrace.spec.join_paths import TEXT, JoinPath
from headrace.spec.layers import BUILD_ID, CARRIED, Query
from headrace.spec.pipeline import Pipeline, TableName
from headrace.spec.types import Column
from headrace.tables import build_ledger, ledger
from headrace.tables.build_ledger import BuildLedger, InputState
from headrace.tables.catalog import load_table
from headrace.tables.schema import arrow_schema, spec_columns

Role = Literal["driver", "lookup", "itself"]


@dataclass(frozen=True)
class Read:
    """What a build reads of a table that has so many `rows`.

    `changed` rows came or changed since the last build; None where that starts no build. Others are found by `columns`, which
    equal `values`; `whole` says why all of them are needed instead. A read without either needs only what changed. A table that
    is `built_first` by the same build has more changes then. With more than `most` rows that are needed whole, a build runs on
    scans.
    """

    table: TableName
    role: Role
    rows: int
    changed: int | None = None
    columns: tuple[str, ...] = ()
    values: str = ""
    whole: str = ""
    most: int = MOST_ROWS
    built_first: bool = False

    @property
    def is_too_large(self) -> bool:
        return bool(self.whole) and self.rows > self.most


@dataclass(frozen=True)
class StoredColumns:
    """The columns that raw tables get and built tables have, as their readers see them."""

    columns: Mapping[TableName, tuple[Column, ...]]

    @classmethod
    def of(cls, catalog: Catalog, pipeline: Pipeline) -> StoredColumns:
        built = {each.table: load_table(catalog, each.table) for each in pipeline.tables}
        known = {
            name: tuple(column for column in spec_columns(table.schema()) if column.name not in (BUILD_ID, CARRIED))
            for name, table in built.items()
            if table is not None
        }
        return cls({**columns_landed(catalog, pipeline), **known})


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
        if table.window:
            columns = (*table.window.partition_by, table.window.order_by)
            yield replace(read, columns=columns, values=f"those of changed rows, {table.window.seconds:g} s around them")
        elif table.kind == "full":
            yield replace(read, whole="its kind is full")
        elif table.kind == "aggregate" and not same_key(table, pipeline) and _all_known(plan, known):
            yield _by_keys(read, plan, known)
        else:
            yield read


def _by_keys(read: Read, plan: TablePlan, known: StoredColumns) -> Read:
    """Return the read with the columns of a driver by which rows of touched keys are found, or why they can't be."""
    driver = read.table
    keys = driver_keys(known, plan.table, driver)
    times = {each.columns[0]: _time_in_words(each) for each in time_keys(known, plan.table, driver)}
    found = {**keys, **times}
    if not isinstance(plan.table.source, Query):
        return replace(read, whole="a Python function may read any row of it")
    if not found:
        return replace(read, whole="no column of it is a key as it stands, or a time that is cut to one")
    return replace(read, columns=tuple(found), values=f"the touched {', '.join(found.values())}")


def _time_in_words(source: KeySource) -> str:
    return f"{source.key} (the {(source.unit or '').lower()} of {source.columns[0]})"


def _lookups(catalog: Catalog, pipeline: Pipeline, plan: TablePlan, known: StoredColumns) -> Iterator[Read]:
    table = plan.table
    if not table.lookups:
        return
    if not _all_known(plan, known):
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


def _all_known(plan: TablePlan, known: StoredColumns) -> bool:
    return all(name in known.columns for name in plan.table.inputs)
