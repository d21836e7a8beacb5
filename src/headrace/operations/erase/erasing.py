"""A person's rows leave the tables that were landed: the raw tables, and the quarantine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.lake import Lake
from headrace.errors import ErasureError
from headrace.faults import fault_point
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.commits.erase_commit import commit_erasure, commit_landed_erasure
from headrace.iceberg.files.in_flight import check_in_time
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.iceberg.ledgers.replay import read_replay
from headrace.iceberg.maintenance.purge import stray_files
from headrace.iceberg.metadata.erasures import Offset, record_erasure
from headrace.iceberg.metadata.quarantine import QUARANTINE, flush_quarantine, open_quarantine
from headrace.iceberg.metadata.quarantine_replay import flush_replayed
from headrace.landing.commit_log import log_files
from headrace.landing.places import logged_elsewhere, places_of
from headrace.operations.erase.identifiers import Identifiers
from headrace.operations.erase.matching import holds_them, is_theirs, names_them, without_them
from headrace.operations.erase.note import Note, write_note
from headrace.operations.erase.offsets import quarantine_offsets_label, stream_offsets_label
from headrace.operations.erase.removal import Found, Mark, Marks, Place, find_rows, stage_rest
from headrace.quality.refused import flush_refused
from headrace.spark.columns import named
from headrace.spec.model.pipeline import Pipeline, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RequestOffsets = tuple[tuple[str, int, int], ...]
_SHORTEST_ID_IN_BYTES = 5
_AGAIN = "The erasure is not finished, and goes on from here: run the same command again."


def labels_of(pipeline: Pipeline) -> frozenset[str]:
    """Return what the quarantine calls the pipeline's streams and tables."""
    return frozenset(
        [*(f"{pipeline.name}.{each.name}" for each in pipeline.streams), *(str(each.table) for each in pipeline.tables)]
    )


def find_in_stream(lake: Lake, stream: Stream, person: Identifiers, requests: RequestOffsets) -> Found:
    """Return what of a raw table is the person's, and the rows that ask for their erasure."""
    if load_table(lake.catalog, stream.table) is None:
        return Found(stream.table)
    mark = _mark_stream(lake, stream, person, requests)
    place = [stream_offsets_label(lake.catalog, lake.pipeline, stream), F.col("kafka_partition"), F.col("kafka_offset")]
    try:
        return find_rows(lake.spark, stream.table, mark, place=place)
    except (AnalysisException, ParseException) as error:
        raise ErasureError(
            f"Spark refuses what people: says of it: {str(error).splitlines()[0]}",
            where=f"stream {stream.name}",
            next_step=f"Nothing was erased. Fix pipeline.yml, then run: headrace check {lake.pipeline.name}",
        ) from None


def find_in_quarantine(lake: Lake, person: Identifiers) -> tuple[Found, ...]:
    """Return what of the quarantine is the person's; nothing where there is none."""
    if load_table(lake.catalog, QUARANTINE) is None:
        return ()
    place = [quarantine_offsets_label(lake.catalog, lake.pipeline), F.col("`partition`"), F.col("`offset`")]
    return (find_rows(lake.spark, QUARANTINE, _mark_quarantine(lake.pipeline, person), place=place),)


def erase_stream(lake: Lake, stream: Stream, note: Note) -> Note:
    """Step 3. Return the note with what went of a raw table. Idempotent: what is gone is not found again."""
    table = load_table(lake.catalog, stream.table)
    if table is None:
        return note
    places, planned = places_of(stream, lake.settings), read_ledger(table)
    label = f"{lake.pipeline.name}.{stream.name}"
    quarantine = open_quarantine(lake.catalog, lake.settings)
    quarantine = flush_quarantine(lake.catalog, quarantine, {label: planned})  # its files are not named by any table yet
    flush_replayed(lake.catalog, quarantine, label, read_replay(table))
    began = time.time()
    found = find_in_stream(lake, stream, note.person, note.request_offsets)
    logged = logged_elsewhere(stream, table, lake.settings)
    if not found and not stray_files(table, (places.table, places.output), logged=logged):
        return note
    if found:
        note = _account(lake, note, found)
    files = stage_rest(lake.spark, found, _mark_stream(lake, stream, note.person, note.request_offsets))
    paths = [str(file.location()) for file in files.added]
    if paths:
        log_files(
            places.commit_log,
            checkpoint_id=planned.checkpoint_id,
            subtask=0,
            batch=note.erasure_id,
            paths=paths,
            now=note.begun_at,
            storage=Storage.of(table.io.properties),
        )
    fault_point(f"{stream.table}:staged")
    check_in_time(lake.settings, began=began, where=str(stream.table), next_step=_AGAIN)
    commit_landed_erasure(lake.spark, lake.catalog, stream.table, files=files, planned=planned, erased=bool(found))
    fault_point(f"{stream.table}:erased")
    return note


def erase_quarantined(lake: Lake, note: Note) -> Note:
    """Step 4. Return the note with what went of the quarantine. Idempotent: what is gone is not found again."""
    for table in lake.pipeline.tables:
        entry = read_build(load_table(lake.catalog, table.table))
        if entry.build_id:
            flush_refused(lake.catalog, lake.settings, table.table, entry)  # a build that died may not have done it
    began = time.time()
    for found in find_in_quarantine(lake, note.person):
        if found:
            note = _account(lake, note, found)
            files = stage_rest(lake.spark, found, _mark_quarantine(lake.pipeline, note.person))
            check_in_time(lake.settings, began=began, where=str(QUARANTINE), next_step=_AGAIN)
            commit_erasure(lake.spark, lake.catalog, QUARANTINE, files=files, erasure_id=note.erasure_id)
    return note


def _account(lake: Lake, note: Note, found: Found) -> Note:
    """Return the note, which says what goes before it goes: Kafka may have it for a while, and `verify` would miss it."""
    for stream in sorted({place.stream for place in found.places}):
        mine = [place for place in found.places if place.stream == stream]
        gone, stays = ([place for place in mine if place.stays is stayed] for stayed in (False, True))
        done = note.erased_table(
            str(found.table),
            stream=stream,
            rows_removed=len(gone),
            rows_redacted=len(stays),
            offsets=_offsets(gone),
            redacted_offsets=_offsets(stays),
        )
        note = note.with_table(done)
    write_note(lake.settings, note)
    record_erasure(lake.catalog, lake.settings, note.erasure_id, note.tables)
    return note


def _offsets(places: list[Place]) -> tuple[Offset, ...]:
    return tuple(Offset(at.partition, at.offset) for at in places if at.partition is not None and at.offset is not None)


def _mark_stream(lake: Lake, stream: Stream, person: Identifiers, requests: RequestOffsets) -> Mark:
    people = lake.pipeline.people
    whose = people.streams.get(stream.name) if people else None
    label = stream_offsets_label(lake.catalog, lake.pipeline, stream)

    def mark(rows: DataFrame) -> Marks:
        removed: Column = is_theirs(rows, whose, person)
        for name, partition, offset in requests:
            at = (F.col("kafka_partition") == partition) & (F.col("kafka_offset") == offset)
            removed = removed | ((label == name) & at)
        return Marks(removed, ~removed & names_them(rows, person), without_them(rows, person))

    return mark


def _mark_quarantine(pipeline: Pipeline, person: Identifiers) -> Mark:
    def mark(rows: DataFrame) -> Marks:
        mine = F.col("stream").isin(*sorted(labels_of(pipeline)))
        held = holds_them(F.col("original_bytes"), person, shortest_id=_SHORTEST_ID_IN_BYTES)
        removed = mine & (held | names_them(rows, person, columns=["reason"]))
        return Marks(F.coalesce(removed, F.lit(False)), F.lit(False), [named(name) for name in rows.columns])

    return mark
