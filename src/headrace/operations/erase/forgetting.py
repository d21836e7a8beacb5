"""Erase a person in eight steps. The numbers are the same in docs/decisions/0012-erasure.md.

1. Look: find the person and their rows.
2. Note: write down the identifiers durably, so that an interrupted erasure can be finished.
3. Land: remove the rows from the raw tables.
4. Quarantine: remove the refused rows.
5. Build: rebuild everything downstream of those rows, and clear Headrace's metadata beside the tables.
6. Publish: update Postgres.
7. Purge: delete old snapshots and files for good, and the cache of rows that builds have read.
8. Prove: search every file, then delete the note.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import polars as pl

from headrace.build.entities.normalise import normalise
from headrace.build.lake import Lake
from headrace.errors import ErasureError
from headrace.faults import fault_point
from headrace.iceberg.catalog.tables import count_rows, load_table
from headrace.iceberg.maintenance.purge import Purged
from headrace.iceberg.metadata.erasures import read_answered_requests, record_erasure
from headrace.operations.erase.erasing import erase_quarantined, erase_stream, find_in_quarantine, find_in_stream
from headrace.operations.erase.erasure_proof import prove, purge_history
from headrace.operations.erase.identifiers import Identifiers, conceal
from headrace.operations.erase.note import Note, read_notes, remove_note, write_note
from headrace.operations.erase.persons import Entities, Person, find_person
from headrace.operations.erase.removal import PersonRows
from headrace.operations.erase.requests import Request, find_requests
from headrace.operations.erase.search import Hit
from headrace.servers.embedded import Report
from headrace.sessions.building import build, open_lake
from headrace.sessions.lock import SHARED, build_lock, maintain_lock, pipeline_lock, replay_lock
from headrace.sessions.shared_spark import spark_session
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spec.model.pipeline import People, Pipeline


@dataclass(frozen=True)
class ErasureSession:
    """The session of an erasure: the pipeline's lake, locked for all other writers since `since` (epoch seconds)."""

    lake: Lake
    people: People
    since: float


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would do: the persons, the requests for it, and the affected rows of each landed table.

    `repeated` are ids of requests that an earlier erasure answered: only the requests' own rows are removed. `unclear` are
    requests whose person is ambiguous.
    """

    persons: tuple[Person, ...]
    requests: tuple[Request, ...]
    affected: tuple[PersonRows, ...]
    unclear: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def person(self) -> Identifiers:
        whole = Identifiers()
        for person in self.persons:
            whole |= person.identifiers
        return whole


@dataclass(frozen=True)
class Proof:
    """The result of an erasure, and the hits of the final search of all files: none if the erasure is complete."""

    note: Note
    hits: tuple[Hit, ...]
    files_searched: int
    files_deleted: int
    dropped_refs: tuple[str, ...]
    topics: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.hits


@contextmanager
def erasing_session(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[ErasureSession]:
    """Yield a session that locks out landing, builds, replays and maintenance, because it deletes files for good."""
    if pipeline.people is None:
        raise ErasureError(
            "the pipeline does not declare people",
            where=f"pipeline {pipeline.name}",
            next_step="Add people: to pipeline.yml (docs/how-to/erasure.md shows how), then run the same command again.",
        )
    with (
        pipeline_lock(settings, pipeline.name, take_over=False),
        build_lock(settings, pipeline.name),
        maintain_lock(settings, pipeline.name),
        maintain_lock(settings, SHARED),
        replay_lock(settings, pipeline.name),
        spark_session(settings, report=report) as spark,
    ):
        yield ErasureSession(open_lake(settings, pipeline, spark), pipeline.people, time.time())


def catch_up(session: ErasureSession) -> None:
    """Build all landed rows, so that the entities have all records of a person. Raise an ErasureError if a table fails."""
    _build(session.lake, next_step="Nothing was erased. Fix the table, then run the same command again.")


def preview_erasure(session: ErasureSession, asked: Sequence[Identifiers], *, requested: bool) -> ErasurePreview:
    """Step 1. Return what an erasure of these persons would do; with `requested`, also of everyone with a waiting request."""
    lake, people = session.lake, session.people
    use_session(lake.spark)
    requests = tuple(
        request
        for source in people.requests
        if requested and _has_rows(lake, source.stream)
        for request in find_requests(lake.spark, lake.pipeline, source, catalog=lake.catalog)
    )
    entities = _entities(lake.pipeline, people)
    persons, unclear, clear = [find_person(lake.catalog, entities, person) for person in asked], [], []
    answered = read_answered_requests(lake.catalog, lake.pipeline.name) if requests else frozenset()
    for request in requests:
        if request.id in answered:
            clear.append(request)
            continue
        try:
            persons.append(find_person(lake.catalog, entities, request.person))
            clear.append(request)
        except ErasureError as error:
            unclear.append(f"request {request.id}: {error.what}")
    repeated = tuple(sorted({request.id for request in clear} & answered))
    preview = ErasurePreview(tuple(persons), tuple(clear), (), tuple(unclear), repeated)
    at = tuple((request.stream, request.partition, request.offset) for request in preview.requests)
    streams = [find_in_stream(lake, stream, preview.person, at) for stream in lake.pipeline.streams]
    return replace(preview, affected=(*streams, *find_in_quarantine(lake, preview.person)))


def begin_erasure(session: ErasureSession, preview: ErasurePreview) -> Note:
    """Step 2. Write the note of a new erasure durably, and return it."""
    lake = session.lake
    subjects = [_subject(person.identifiers) for person in preview.persons]
    rows = {str(table.table): count_rows(load_table(lake.catalog, table.table)) for table in lake.pipeline.tables}
    note = Note(
        str(uuid.uuid4()),
        lake.pipeline.name,
        tuple(conceal(subject) for subject in subjects),
        preview.person,
        datetime.now(timezone.utc),
        tuple(dict.fromkeys(request.id for request in preview.requests)),
        tuple((request.stream, request.partition, request.offset) for request in preview.requests),
        rows=rows,
    )
    write_note(lake.settings, note)
    fault_point("forget:noted")
    return note


def finish_erasure(session: ErasureSession, note: Note, *, publish: Callable[[], None], report: Report) -> Proof:
    """Steps 3 to 8. Return the proof. Idempotent by erasure: an interrupted one resumes.

    If the search finds the person, the note stays, and running the command again retries.
    """
    lake = session.lake
    use_session(lake.spark)
    for stream in lake.pipeline.streams:
        note = erase_stream(lake, stream, note)
    report("Erased the rows from the raw tables")
    fault_point("forget:landed")
    note = erase_quarantined(lake, note)
    fault_point("forget:quarantined")
    _build(lake, next_step=f"The erasure is not finished. Fix the table, then run: headrace erase {lake.pipeline.name}")
    report("Rebuilt the downstream tables")
    fault_point("forget:built")
    publish()
    fault_point("forget:published")
    purged = purge_history(lake, note, since=session.since)
    lake.store.clear()
    fault_point("forget:purged")
    hits, searched = prove(lake, note)
    if hits:
        more = purge_history(lake, note, since=session.since, also=frozenset(hit.table for hit in hits))
        purged = Purged(purged.snapshots + more.snapshots, purged.refs + more.refs, purged.files + more.files)
        hits, searched = prove(lake, note)
    topics = tuple(stream.topic for stream in lake.pipeline.streams)
    proof = Proof(note, hits, searched, purged.files, purged.refs, topics)
    if proof.holds:
        now = datetime.now(timezone.utc)
        for name, rows_before in note.rows.items():
            rows_left = count_rows(lake.catalog.load_table(name)) if rows_before else 0
            if rows_before > rows_left:
                note = note.with_table(note.erased_table(name, rows_removed=rows_before - rows_left))
        tables = note.tables or (note.erased_table(""),)
        rows = [replace(table, files_searched=searched, proved_at=now) for table in tables]
        record_erasure(lake.catalog, lake.settings, note.erasure_id, rows)
        fault_point("forget:proved")
        remove_note(lake.settings, note)
        proof = replace(proof, note=note)
    return proof


def unfinished_erasures(settings: Settings, pipeline: Pipeline) -> tuple[Note, ...]:
    """Return the notes of unfinished erasures."""
    return read_notes(settings, pipeline.name)


def _build(lake: Lake, *, next_step: str) -> None:
    for outcome in build(lake):
        if outcome.error:
            raise ErasureError(f"the build failed: {outcome.error.what}", where=str(outcome.table.table), next_step=next_step)


def _subject(person: Identifiers) -> str:
    """Return the value whose hash identifies the person afterwards: the first email, phone or id."""
    ids = [f"{kind}:{value}" for kind, values in person.ids.items() for value in sorted(values)]
    return next(iter([*sorted(person.emails), *sorted(person.phones), *ids]), "")


def _entities(pipeline: Pipeline, people: People) -> Entities | None:
    """Return the pipeline's table of entities, with its normalisation of emails if it is an entity table."""
    table = next((table for table in pipeline.tables if table.table == people.entities), None)
    if table is None or not table.matches:
        return Entities(table.table) if table else None
    emails = [column for column in table.matches if column.how == "email"]
    phones = [column for column in table.matches if column.how == "phone"]

    def normalise_email(written: str) -> str | None:
        values = [normalise(pl.DataFrame({column.source: [written]}), [column])[column.column][0] for column in emails]
        return next((str(value) for value in values if value), None)

    return Entities(
        table.table,
        tuple(dict.fromkeys(name for column in emails for name in (column.source, column.column))),
        tuple(dict.fromkeys(name for column in phones for name in (column.source, column.column))),
        normalise_email,
        tuple(column.column for column in table.matches) if table.fuzzy else (),
    )


def _has_rows(lake: Lake, stream: str) -> bool:
    table = load_table(lake.catalog, lake.pipeline.stream(stream).table)
    return table is not None and table.current_snapshot() is not None
