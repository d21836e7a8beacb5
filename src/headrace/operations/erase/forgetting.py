"""Erasing a person as a command does it, in eight steps. The numbers are those of docs/decisions/0012-erasure.md.

1. Look: who is meant, and which rows are theirs.
2. Note: what tells them, so that an erasure that dies can be finished.
3. Land: their rows leave the raw tables.
4. Quarantine: and the rows that were refused.
5. Build: all that was made of those rows is made anew; what Headrace kept beside the tables goes.
6. Publish: Postgres follows.
7. Purge: old snapshots and files go for good, and so does the cache of rows that builds have read.
8. Prove: every file is searched; the note goes.
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
from headrace.operations.erase.erasure_proof import prove, purge_past
from headrace.operations.erase.identifiers import Identifiers, conceal
from headrace.operations.erase.note import Note, read_notes, remove_note, write_note
from headrace.operations.erase.persons import Entities, Person, find_person
from headrace.operations.erase.removal import Found
from headrace.operations.erase.requests import Request, find_requests
from headrace.operations.erase.search import Hit
from headrace.servers.embedded import Report
from headrace.sessions.building import build, open_lake
from headrace.sessions.landing import spark_session
from headrace.sessions.lock import SHARED, build_lock, maintain_lock, pipeline_lock, replay_lock
from headrace.settings import Settings
from headrace.spark.active_session import use_session
from headrace.spec.model.pipeline import People, Pipeline


@dataclass(frozen=True)
class Erasing:
    """What an erasure works with: the pipeline's lake, nobody else in it since `since` (seconds since 1970)."""

    lake: Lake
    people: People
    since: float


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would do: who is meant, the requests that ask for it, and what of each landed table goes.

    `repeated` are ids of requests that an earlier erasure answered: their rows go, and nobody is erased because of them.
    """

    persons: tuple[Person, ...]
    requests: tuple[Request, ...]
    found: tuple[Found, ...]
    unclear: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def person(self) -> Identifiers:
        whole = Identifiers()
        for each in self.persons:
            whole |= each.identifiers
        return whole


@dataclass(frozen=True)
class Proof:
    """What an erasure did, and what a search of all files found afterwards: nothing, or it is not done."""

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
def erasing_session(settings: Settings, pipeline: Pipeline, *, report: Report) -> Iterator[Erasing]:
    """Yield a session in which nobody else lands, builds or replays the pipeline: files are deleted for good."""
    if pipeline.people is None:
        raise ErasureError(
            "the pipeline does not say whose its rows are",
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
        yield Erasing(open_lake(settings, pipeline, spark), pipeline.people, time.time())


def catch_up(erasing: Erasing) -> None:
    """Build what was landed since, so that the entities know all records of a person; a table that fails is an error."""
    _build(erasing.lake, next_step="Nothing was erased. Mend it, then run the same command again.")


def look(erasing: Erasing, asked: Sequence[Identifiers], *, requested: bool) -> ErasurePreview:
    """Step 1. Return what an erasure of these persons would do, and with `requested` of all whose requests wait."""
    lake, people = erasing.lake, erasing.people
    use_session(lake.spark)
    requests = tuple(
        request
        for each in people.requests
        if requested and _is_there(lake, each.stream)
        for request in find_requests(lake.spark, lake.pipeline, each, catalog=lake.catalog)
    )
    entities = _entities(lake.pipeline, people)
    persons, unclear, clear = [find_person(lake.catalog, entities, each) for each in asked], [], []
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
    repeated = tuple(sorted({each.id for each in clear} & answered))
    looked = ErasurePreview(tuple(persons), tuple(clear), (), tuple(unclear), repeated)
    at = tuple((each.stream, each.partition, each.offset) for each in looked.requests)
    streams = [find_in_stream(lake, each, looked.person, at) for each in lake.pipeline.streams]
    return replace(looked, found=(*streams, *find_in_quarantine(lake, looked.person)))


def begin(erasing: Erasing, looked: ErasurePreview) -> Note:
    """Step 2. Return the note of a new erasure, durably written."""
    lake = erasing.lake
    told = [_subject(each.identifiers) for each in looked.persons]
    rows = {str(each.table): count_rows(load_table(lake.catalog, each.table)) for each in lake.pipeline.tables}
    note = Note(
        str(uuid.uuid4()),
        lake.pipeline.name,
        tuple(conceal(each) for each in told),
        looked.person,
        datetime.now(timezone.utc),
        tuple(dict.fromkeys(each.id for each in looked.requests)),
        tuple((each.stream, each.partition, each.offset) for each in looked.requests),
        rows=rows,
    )
    write_note(lake.settings, note)
    fault_point("forget:noted")
    return note


def finish(erasing: Erasing, note: Note, *, publish: Callable[[], None], report: Report) -> Proof:
    """Steps 3 to 8. Return the proof. Idempotent by erasure: one that died goes on where it was.

    Where the search finds the person, the note stays, and the same command tries again.
    """
    lake = erasing.lake
    use_session(lake.spark)
    for stream in lake.pipeline.streams:
        note = erase_stream(lake, stream, note)
    report("their rows have left the raw tables")
    fault_point("forget:landed")
    note = erase_quarantined(lake, note)
    fault_point("forget:quarantined")
    _build(lake, next_step=f"The erasure is not finished. Mend it, then run: headrace forget {lake.pipeline.name}")
    report("the tables that were made of them are made anew")
    fault_point("forget:built")
    publish()
    fault_point("forget:published")
    purged = purge_past(lake, note, since=erasing.since)
    lake.store.clear()
    fault_point("forget:purged")
    hits, searched = prove(lake, note)
    if hits:
        past = purge_past(lake, note, since=erasing.since, also=frozenset(hit.table for hit in hits))
        purged = Purged(purged.snapshots + past.snapshots, purged.refs + past.refs, purged.files + past.files)
        hits, searched = prove(lake, note)
    topics = tuple(stream.topic for stream in lake.pipeline.streams)
    proof = Proof(note, hits, searched, purged.files, purged.refs, topics)
    if proof.holds:
        now = datetime.now(timezone.utc)
        for name, before in note.rows.items():
            left = count_rows(lake.catalog.load_table(name)) if before else 0
            if before > left:
                note = note.with_table(note.erased_table(name, rows_removed=before - left))
        done = note.tables or (note.erased_table(""),)
        rows = [replace(each, files_searched=searched, proved_at=now) for each in done]
        record_erasure(lake.catalog, lake.settings, note.erasure_id, rows)
        fault_point("forget:proved")
        remove_note(lake.settings, note)
        proof = replace(proof, note=note)
    return proof


def unfinished(settings: Settings, pipeline: Pipeline) -> tuple[Note, ...]:
    """Return the erasures that were begun and not finished."""
    return read_notes(settings, pipeline.name)


def _build(lake: Lake, *, next_step: str) -> None:
    for outcome in build(lake):
        if outcome.error:
            raise ErasureError(f"it can't be built: {outcome.error.what}", where=str(outcome.table.table), next_step=next_step)


def _subject(person: Identifiers) -> str:
    """Return what a person is known by afterwards, to whoever asks with the same words: the first email, phone or id."""
    ids = [f"{kind}:{each}" for kind, values in person.ids.items() for each in sorted(values)]
    return next(iter([*sorted(person.emails), *sorted(person.phones), *ids]), "")


def _entities(pipeline: Pipeline, people: People) -> Entities | None:
    """Return the pipeline's table of entities, and how it writes emails where it is of that kind."""
    table = next((each for each in pipeline.tables if each.table == people.entities), None)
    if table is None or not table.matches:
        return Entities(table.table) if table else None
    emails = [each for each in table.matches if each.how == "email"]
    phones = [each for each in table.matches if each.how == "phone"]

    def normalise_email(written: str) -> str | None:
        found = [normalise(pl.DataFrame({each.source: [written]}), [each])[each.column][0] for each in emails]
        return next((str(each) for each in found if each), None)

    return Entities(
        table.table,
        tuple(dict.fromkeys(name for each in emails for name in (each.source, each.column))),
        tuple(dict.fromkeys(name for each in phones for name in (each.source, each.column))),
        normalise_email,
        tuple(each.column for each in table.matches) if table.fuzzy else (),
    )


def _is_there(lake: Lake, stream: str) -> bool:
    found = load_table(lake.catalog, lake.pipeline.stream(stream).table)
    return found is not None and found.current_snapshot() is not None
