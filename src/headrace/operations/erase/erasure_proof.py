"""Purge the history of erased tables, and prove that no file contains the person."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.build.lake import Lake
from headrace.build.removed import forget_removed, removed_name
from headrace.iceberg.catalog.tables import load_table, table_location
from headrace.iceberg.files.storage import Storage, StoredFile, list_all, open_input
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.maintenance.purge import OTHERS_HURRY_SECONDS, Purged, is_data, needed_files, purge_table, stray_files
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.landing.places import logged_elsewhere, places_of
from headrace.logs import log_trace
from headrace.operations.erase.erasing import labels_of
from headrace.operations.erase.note import Note
from headrace.operations.erase.search import Hit, Target, search_files
from headrace.quality.results import QUALITY_RESULTS, forget_samples
from headrace.settings import Settings
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName

_LOG = logging.getLogger(__name__)


def purge_history(lake: Lake, note: Note, *, since: float, also: frozenset[str] = frozenset()) -> Purged:
    """Step 7. Purge the history of all tables that the erasure touched, and of everything downstream of them.

    `also` are further tables to purge, because a search found the person in their history.
    """
    downstream = downstream_of(lake.pipeline, {erased.table_name for erased in note.tables})
    entries = {table.table: read_build(load_table(lake.catalog, table.table)) for table in downstream}
    for name, entry in entries.items():
        forget_removed(lake.catalog, name, generation=entry.generation)
    forget_samples(lake.catalog, lake.pipeline.name, {name: entry.build_id for name, entry in entries.items()})
    touched = {erased.table_name for erased in note.tables} | {str(table.table) for table in downstream}
    touched |= {str(removed_name(table.table)) for table in downstream}
    total, every_shared = Purged(), shared_tables(lake.pipeline)
    streams, storage = {stream.table: stream for stream in lake.pipeline.streams}, Storage.of(lake.catalog.properties)
    for name, folders in folders_of(lake.settings, lake.pipeline).items():
        table = load_table(lake.catalog, name)
        shared, stream = every_shared.get(name), streams.get(name)
        logged = logged_elsewhere(stream, table, lake.settings) if stream and table else frozenset()
        if table is None or not (shared or str(name) in touched | also or stray_files(table, folders, logged=logged)):
            continue
        is_ours = None if shared is None else _owner(*shared, storage=storage)
        purged = purge_table(lake.catalog, name, folders=folders, before=since, logged=logged, is_ours=is_ours)
        refs = tuple(f"{name} {ref}" for ref in purged.refs)
        total = Purged(total.snapshots + purged.snapshots, total.refs + refs, total.files + purged.files)
    return total


def prove(lake: Lake, note: Note) -> tuple[tuple[Hit, ...], int]:
    """Step 8. Search every file of the pipeline. Return where the person is found, and the number of files searched."""
    targets = []
    storage = Storage.of(lake.catalog.properties)
    young, every_shared = time.time() - OTHERS_HURRY_SECONDS, shared_tables(lake.pipeline)
    for name, folders in folders_of(lake.settings, lake.pipeline).items():
        shared = every_shared.get(name)
        table = load_table(lake.catalog, name)
        needed = needed_files(table) if table else frozenset()
        for file in list_all(*folders, storage=storage):
            if file.uri.endswith(".avro") and file.uri in needed:
                continue  # its bounds repeat values of live files, cut short: another person's longer value would match
            if shared and file.uri.endswith(".inprogress") and file.modified > young:
                continue  # another pipeline is writing it
            column, values = shared if shared and is_data(file.uri) else (None, frozenset())
            targets.append(Target(str(name), file.uri, column, values))
    return search_files(lake.spark.sparkContext, targets, note.person, storage=storage), len(targets)


def downstream_of(pipeline: Pipeline, names: set[str]) -> tuple[LayerTable, ...]:
    """Return all tables downstream of these, directly or indirectly, lookups included."""
    known, downstream = set(names), []
    for table in pipeline.tables:
        if any(str(name) in known for name in table.inputs):
            known.add(str(table.table))
            downstream.append(table)
    return tuple(downstream)


def folders_of(settings: Settings, pipeline: Pipeline) -> dict[TableName, tuple[str, ...]]:
    """Return the folders of every table of the pipeline, and of the metadata tables beside them."""
    folders: dict[TableName, tuple[str, ...]] = {}
    for stream in pipeline.streams:
        places = places_of(stream, settings)
        folders[stream.table] = (places.table, places.output, places.commit_log)
    for table in pipeline.tables:
        folders[table.table] = (table_location(settings, table.table),)
        folders[removed_name(table.table)] = (table_location(settings, removed_name(table.table)),)
    for name in (QUARANTINE, QUALITY_RESULTS):
        folders[name] = (table_location(settings, name),)
    return folders


def shared_tables(pipeline: Pipeline) -> dict[TableName, tuple[str, frozenset[str]]]:
    """Return the tables that pipelines share, with the column and its values that mark this pipeline's rows."""
    return {QUARANTINE: ("stream", labels_of(pipeline)), QUALITY_RESULTS: ("pipeline_name", frozenset({pipeline.name}))}


def _owner(column: str, values: frozenset[str], *, storage: Storage) -> Callable[[StoredFile], bool]:
    """Return a function that tells whether an unreferenced file has rows of this pipeline, and so can be deleted.

    No writer of this pipeline is active. Files that also have rows of other pipelines come from compaction, which the erasure
    locks out, so no commit of them is pending.
    """

    def is_ours(file: StoredFile) -> bool:
        try:
            with open_input(file.uri, storage=storage) as stream:
                owners = pq.ParquetFile(stream).read(columns=[column])[column]
            return bool(set(pc.unique(owners).to_pylist()) & values)
        except Exception as error:  # incomplete: another pipeline may be writing it
            log_trace(_LOG, "an orphan file could not be read", error, level=logging.INFO)
            return file.modified < time.time() - OTHERS_HURRY_SECONDS

    return is_ours
