"""Erase a person's rows from the landed tables: the raw tables and the quarantine."""

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
from headrace.operations.erase.matching import belongs_to_person, bytes_name_person, redacted_columns, row_names_person
from headrace.operations.erase.note import Note, write_note
from headrace.operations.erase.offsets import quarantine_offsets_label, stream_offsets_label
from headrace.operations.erase.removal import Mark, Marks, PersonRows, RowOrigin, find_rows, stage_rest
from headrace.quality.refused import flush_refused
from headrace.spark.columns import named
from headrace.spec.model.pipeline import Pipeline, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RequestOffsets = tuple[tuple[str, int, int], ...]
_SHORTEST_ID_IN_BYTES = 5
_AGAIN = "The erasure is not finished. To continue it, run the same command again."


def labels_of(pipeline: Pipeline) -> frozenset[str]:
    """Return the quarantine's labels of the pipeline's streams and tables."""
    return frozenset(
        [*(f"{pipeline.name}.{stream.name}" for stream in pipeline.streams), *(str(table.table) for table in pipeline.tables)]
    )


def find_in_stream(lake: Lake, stream: Stream, person: Identifiers, requests: RequestOffsets) -> PersonRows:
    """Return the person's rows of a raw table, and the rows that request their erasure."""
    if load_table(lake.catalog, stream.table) is None:
        return PersonRows(stream.table)
    mark = _mark_stream(lake, stream, person, requests)
    place = [stream_offsets_label(lake.catalog, lake.pipeline, stream), F.col("kafka_partition"), F.col("kafka_offset")]
    try:
        return find_rows(lake.spark, stream.table, mark, place=place)
    except (AnalysisException, ParseException) as error:
        raise ErasureError(
            f"Spark can't run the expressions in people: {str(error).splitlines()[0]}",
            where=f"stream {stream.name}",
            next_step=f"Nothing was erased. Fix pipeline.yml, then run: headrace check {lake.pipeline.name}",
        ) from None


def find_in_quarantine(lake: Lake, person: Identifiers) -> tuple[PersonRows, ...]:
    """Return the person's rows of the quarantine; empty without a quarantine."""
    if load_table(lake.catalog, QUARANTINE) is None:
        return ()
    place = [quarantine_offsets_label(lake.catalog, lake.pipeline), F.col("`partition`"), F.col("`offset`")]
    return (find_rows(lake.spark, QUARANTINE, _mark_quarantine(lake.pipeline, person), place=place),)


def erase_stream(lake: Lake, stream: Stream, note: Note) -> Note:
    """Step 3. Erase the person's rows from a raw table, and return the note with the result. Idempotent."""
    table = load_table(lake.catalog, stream.table)
    if table is None:
        return note
    places, planned = places_of(stream, lake.settings), read_ledger(table)
    label = f"{lake.pipeline.name}.{stream.name}"
    quarantine = open_quarantine(lake.catalog, lake.settings)
    quarantine = flush_quarantine(lake.catalog, quarantine, {label: planned})  # files that no table refers to yet
    flush_replayed(lake.catalog, quarantine, label, read_replay(table))
    began = time.time()
    rows = find_in_stream(lake, stream, note.person, note.request_offsets)
    logged = logged_elsewhere(stream, table, lake.settings)
    if not rows and not stray_files(table, (places.table, places.output), logged=logged):
        return note
    if rows:
        note = _account(lake, note, rows)
    files = stage_rest(lake.spark, rows, _mark_stream(lake, stream, note.person, note.request_offsets))
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
    commit_landed_erasure(lake.spark, lake.catalog, stream.table, files=files, planned=planned, erased=bool(rows))
    fault_point(f"{stream.table}:erased")
    return note


def erase_quarantined(lake: Lake, note: Note) -> Note:
    """Step 4. Erase the person's rows from the quarantine, and return the note with the result. Idempotent."""
    for table in lake.pipeline.tables:
        entry = read_build(load_table(lake.catalog, table.table))
        if entry.build_id:
            flush_refused(lake.catalog, lake.settings, table.table, entry)  # a build that was killed may not have done it
    began = time.time()
    for rows in find_in_quarantine(lake, note.person):
        if rows:
            note = _account(lake, note, rows)
            files = stage_rest(lake.spark, rows, _mark_quarantine(lake.pipeline, note.person))
            check_in_time(lake.settings, began=began, where=str(QUARANTINE), next_step=_AGAIN)
            commit_erasure(lake.spark, lake.catalog, QUARANTINE, files=files, erasure_id=note.erasure_id)
    return note


def _account(lake: Lake, note: Note, rows: PersonRows) -> Note:
    """Record the rows in the note and in `metadata.erasures` before they are erased, so that `verify` does not miss them."""
    for stream in sorted({place.stream for place in rows.origins}):
        origins = [place for place in rows.origins if place.stream == stream]
        removed, redacted = ([place for place in origins if place.stays is stayed] for stayed in (False, True))
        erased = note.erased_table(
            str(rows.table),
            stream=stream,
            rows_removed=len(removed),
            rows_redacted=len(redacted),
            offsets=_offsets(removed),
            redacted_offsets=_offsets(redacted),
        )
        note = note.with_table(erased)
    write_note(lake.settings, note)
    record_erasure(lake.catalog, lake.settings, note.erasure_id, note.tables)
    return note


def _offsets(places: list[RowOrigin]) -> tuple[Offset, ...]:
    return tuple(Offset(at.partition, at.offset) for at in places if at.partition is not None and at.offset is not None)


def _mark_stream(lake: Lake, stream: Stream, person: Identifiers, requests: RequestOffsets) -> Mark:
    people = lake.pipeline.people
    whose = people.streams.get(stream.name) if people else None
    label = stream_offsets_label(lake.catalog, lake.pipeline, stream)

    def mark(rows: DataFrame) -> Marks:
        is_removed: Column = belongs_to_person(rows, whose, person)
        for name, partition, offset in requests:
            at = (F.col("kafka_partition") == partition) & (F.col("kafka_offset") == offset)
            is_removed = is_removed | ((label == name) & at)
        return Marks(is_removed, ~is_removed & row_names_person(rows, person), redacted_columns(rows, person))

    return mark


def _mark_quarantine(pipeline: Pipeline, person: Identifiers) -> Mark:
    def mark(rows: DataFrame) -> Marks:
        is_ours = F.col("stream").isin(*sorted(labels_of(pipeline)))
        names_person = bytes_name_person(F.col("original_bytes"), person, shortest_id=_SHORTEST_ID_IN_BYTES)
        removed = is_ours & (names_person | row_names_person(rows, person, columns=["reason"]))
        return Marks(F.coalesce(removed, F.lit(False)), F.lit(False), [named(name) for name in rows.columns])

    return mark
