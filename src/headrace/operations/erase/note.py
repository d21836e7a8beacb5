"""An erasure that was begun, noted so that it can be finished after the application died.

While a person is erased table by table, the tables know less and less of who it was. So what tells them is noted before the
first row goes, in a file that only its owner can read, and the note goes last.
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
    """One erasure: who is meant, which requests asked for it, where those stand in their streams, and what it did so far.

    `rows` are how many each layer table had before.
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
        """Return what this erasure did to a table."""
        made = ErasedTable(self.erasure_id, self.pipeline, self.subjects, self.request_ids, name, self.begun_at)
        return replace(made, **values)  # type: ignore[arg-type]

    def with_table(self, done: ErasedTable) -> Note:
        """Return the note with what was done to a table, added to what it says of it already."""
        key = (done.table_name, done.stream)
        known = next((each for each in self.tables if (each.table_name, each.stream) == key), None)
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
        rest = tuple(each for each in self.tables if (each.table_name, each.stream) != key)
        return replace(self, tables=(*rest, done))


def write_note(settings: Settings, note: Note) -> None:
    """Write a note, durably. Idempotent by erasure."""
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
    """Return the erasures of a pipeline that were begun and not finished, oldest first."""
    found = [msgspec.json.decode(path.read_bytes(), type=Note) for path in _paths(settings)]
    return tuple(sorted((each for each in found if each.pipeline == pipeline), key=lambda note: note.begun_at))


def remove_note(settings: Settings, note: Note) -> None:
    """Remove a note: its erasure is finished."""
    _path(settings, note).unlink(missing_ok=True)
    _path(settings, note).with_suffix(".inprogress").unlink(missing_ok=True)


def _folder(settings: Settings) -> Path:
    return settings.home / "erasures"


def _path(settings: Settings, note: Note) -> Path:
    return _folder(settings) / f"{note.erasure_id}.json"


def _paths(settings: Settings) -> Iterator[Path]:
    folder = _folder(settings)
    return iter(sorted(folder.glob("*.json"))) if folder.exists() else iter(())
