"""Checks that every commit of a build makes, with PyIceberg as with Iceberg's Java library."""

from __future__ import annotations

from pyiceberg.table import Table

from headrace.errors import CompactedError, TakenOverError
from headrace.iceberg.ledgers.build import BuildLedger, read_build


def find_build(table: Table, *, planned: BuildLedger, new: BuildLedger) -> BuildLedger | None:
    """Return the entry of build `new` if the table has it, and None if the table's entry is still `planned`.

    Raises TakenOverError if another build has changed the entry, or if the table was rolled back.
    """
    entry = read_build(table)
    if entry.writer == new.writer:
        return entry
    if (entry.writer, entry.generation) != (planned.writer, planned.generation):
        raise TakenOverError(
            f"another application has committed build {entry.build_id} since this one planned its build",
            where=".".join(table.name()),
            next_step="Nothing was lost or written twice. Stop one of the two applications.",
        )
    return None


def compacted_error(where: str) -> CompactedError:
    """Return the error of a build whose files changed between its plan and its commit."""
    return CompactedError(
        "files that the build replaces were compacted while it ran",
        where=where,
        next_step="Nothing was published. Headrace plans the build again.",
    )
