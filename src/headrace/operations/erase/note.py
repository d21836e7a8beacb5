"""The note of an erasure in progress, so that an interrupted erasure can be finished.

An erasure removes the person's identifiers from one table after the other. They are therefore written to a note first, in a
file that only its owner can read. The note is deleted last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import msgspec

from headrace.iceberg.metadata.erasures import ErasedTable
from headrace.operations.erase.identifiers import Identifiers
from headrace.settings import Settings


@dataclass(frozen=True)
class Note:
    """One erasure: the person, the requests for it with their offsets, and the result per table so far.

    `rows` are the row counts of the layer tables before the erasure.
    """

    erasure_id: str
    pipeline: str
    subjects: tuple[str, ...]
    person: Identifiers
    begun_at: datetime
    request_ids: tuple[str, ...] = ()
    request_offsets: tuple[tuple[str, int, int], ...] = ()
    tables: tuple[ErasedTable, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)

    def erased_table(self, name: str, **values: object) -> ErasedTable:
        """Return a record of this erasure for a table, with these values."""
        erased = ErasedTable(self.erasure_id, self.pipeline, self.subjects, self.request_ids, name, self.begun_at)
        return replace(erased, **values)  # type: ignore[arg-type]

    def with_table(self, done: ErasedTable) -> Note:
        """Return the note with a table's record merged into the one that it has already."""
        key = (done.table_name, done.stream)
        known = next((table for table in self.tables if (table.table_name, table.stream) == key), None)
        if known is not None:
            offsets = tuple(dict.fromkeys((*known.offsets, *done.offsets)))
            redacted = tuple(dict.fromkeys((*known.redacted_offsets, *done.redacted_offsets)))
            done = replace(
                done,
                offsets=offsets,
                rows_removed=max(len(offsets), known.rows_removed, done.rows_removed),
                rows_redacted=max(known.rows_redacted, done.rows_redacted),
                redacted_offsets=redacted,
            )
        rest = tuple(table for table in self.tables if (table.table_name, table.stream) != key)
        return replace(self, tables=(*rest, done))


def write_note(settings: Settings, note: Note) -> None:
    """Write a note durably. Idempotent by erasure."""
    folder = _folder(settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = _path(settings, note)
    hidden = path.with_suffix(".inprogress")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(note, enc_hook=dict))
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(path)


def read_notes(settings: Settings, pipeline: str) -> tuple[Note, ...]:
    """Return the notes of a pipeline's unfinished erasures, oldest first."""
    notes = [msgspec.json.decode(path.read_bytes(), type=Note) for path in _paths(settings)]
    return tuple(sorted((note for note in notes if note.pipeline == pipeline), key=lambda note: note.begun_at))


def remove_note(settings: Settings, note: Note) -> None:
    """Delete the note of a finished erasure."""
    _path(settings, note).unlink(missing_ok=True)
    _path(settings, note).with_suffix(".inprogress").unlink(missing_ok=True)


def _folder(settings: Settings) -> Path:
    return settings.home / "erasures"


def _path(settings: Settings, note: Note) -> Path:
    return _folder(settings) / f"{note.erasure_id}.json"


def _paths(settings: Settings) -> Iterator[Path]:
    folder = _folder(settings)
    return iter(sorted(folder.glob("*.json"))) if folder.exists() else iter(())
