"""What an erasure leaves behind: no past of the tables that it touched, and the proof that nothing of the person is on disk."""

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


def purge_past(lake: Lake, note: Note, *, since: float, also: frozenset[str] = frozenset()) -> Purged:
    """Step 7. Return what went of the past of all tables that the erasure touched, and of all that are made of them.

    `also` are tables in whose past the person was found although no row of theirs was touched.
    """
    made = made_of(lake.pipeline, {each.table_name for each in note.tables})
    entries = {each.table: read_build(load_table(lake.catalog, each.table)) for each in made}
    for name, entry in entries.items():
        forget_removed(lake.catalog, name, generation=entry.generation)
    forget_samples(lake.catalog, lake.pipeline.name, {name: entry.build_id for name, entry in entries.items()})
    touched = {each.table_name for each in note.tables} | {str(each.table) for each in made}
    touched |= {str(removed_name(each.table)) for each in made}
    total, every_shared = Purged(), shared_tables(lake.pipeline)
    streams, storage = {each.table: each for each in lake.pipeline.streams}, Storage.of(lake.catalog.properties)
    for name, folders in folders_of(lake.settings, lake.pipeline).items():
        table = load_table(lake.catalog, name)
        shared, stream = every_shared.get(name), streams.get(name)
        logged = logged_elsewhere(stream, table, lake.settings) if stream and table else frozenset()
        if table is None or not (shared or str(name) in touched | also or stray_files(table, folders, logged=logged)):
            continue
        is_ours = None if shared is None else _owner(*shared, storage=storage)
        one = purge_table(lake.catalog, name, folders=folders, before=since, logged=logged, is_ours=is_ours)
        refs = tuple(f"{name} {ref}" for ref in one.refs)
        total = Purged(total.snapshots + one.snapshots, total.refs + refs, total.files + one.files)
    return total


def prove(lake: Lake, note: Note) -> tuple[tuple[Hit, ...], int]:
    """Step 8. Return where the person is found in any file of the pipeline, and how many files were searched."""
    targets = []
    storage = Storage.of(lake.catalog.properties)
    young, every_shared = time.time() - OTHERS_HURRY_SECONDS, shared_tables(lake.pipeline)
    for name, folders in folders_of(lake.settings, lake.pipeline).items():
        shared = every_shared.get(name)
        table = load_table(lake.catalog, name)
        needed = needed_files(table) if table else frozenset()
        for file in list_all(*folders, storage=storage):
            if file.uri.endswith(".avro") and file.uri in needed:
                continue  # it says of live files what is in them, and cuts values short: a longer one then looks like another's
            if shared and file.uri.endswith(".inprogress") and file.modified > young:
                continue  # another pipeline writes it now
            column, values = shared if shared and is_data(file.uri) else (None, frozenset())
            targets.append(Target(str(name), file.uri, column, values))
    return search_files(lake.spark.sparkContext, targets, note.person, storage=storage), len(targets)


def made_of(pipeline: Pipeline, names: set[str]) -> tuple[LayerTable, ...]:
    """Return the tables that are made of these, also by a lookup, and those that are made of them."""
    known, found = set(names), []
    for table in pipeline.tables:
        if any(str(each) in known for each in table.inputs):
            known.add(str(table.table))
            found.append(table)
    return tuple(found)


def folders_of(settings: Settings, pipeline: Pipeline) -> dict[TableName, tuple[str, ...]]:
    """Return where the files are of every table of the pipeline, and of what Headrace keeps beside them."""
    found: dict[TableName, tuple[str, ...]] = {}
    for stream in pipeline.streams:
        places = places_of(stream, settings)
        found[stream.table] = (places.table, places.output, places.commit_log)
    for table in pipeline.tables:
        found[table.table] = (table_location(settings, table.table),)
        found[removed_name(table.table)] = (table_location(settings, removed_name(table.table)),)
    for name in (QUARANTINE, QUALITY_RESULTS):
        found[name] = (table_location(settings, name),)
    return found


def shared_tables(pipeline: Pipeline) -> dict[TableName, tuple[str, frozenset[str]]]:
    """Return the tables that pipelines share, and which values of which column tell this one's rows."""
    return {QUARANTINE: ("stream", labels_of(pipeline)), QUALITY_RESULTS: ("pipeline_name", frozenset({pipeline.name}))}


def _owner(column: str, values: frozenset[str], *, storage: Storage) -> Callable[[StoredFile], bool]:
    """Return what says whether a file that nothing refers to is this pipeline's, of which nobody writes any now.

    Files that hold rows of others too come from compaction, which the erasure keeps away: nobody is about to commit them.
    """

    def is_ours(file: StoredFile) -> bool:
        try:
            with open_input(file.uri, storage=storage) as stream:
                found = pq.ParquetFile(stream).read(columns=[column])[column]
            return bool(set(pc.unique(found).to_pylist()) & values)
        except Exception as error:  # half written, perhaps by another pipeline at this moment
            log_trace(_LOG, "a file that nothing refers to could not be read", error, level=logging.INFO)
            return file.modified < time.time() - OTHERS_HURRY_SECONDS

    return is_ours
