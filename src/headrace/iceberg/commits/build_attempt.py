"""What every commit of a build asks of the table, whichever library makes it."""

from __future__ import annotations

from pyiceberg.table import Table

from headrace.errors import CompactedError, TakenOverError
from headrace.iceberg.ledgers.build import BuildLedger, read_build


def find_build(table: Table, *, planned: BuildLedger, new: BuildLedger) -> BuildLedger | None:
    """Return the entry of build `new` if the table has it, and None if the table is still as it was `planned`.

    Raises a TakenOverError if another build has moved the entry, or if the table was rolled back.
    """
    entry = read_build(table)
    if entry.writer == new.writer:
        return entry
    if (entry.writer, entry.generation) != (planned.writer, planned.generation):
        raise TakenOverError(
            f"build {entry.build_id} was made by another application since this one planned its own",
            where=".".join(table.name()),
            next_step="Nothing was lost and nothing was written twice. Keep one of the two applications.",
        )
    return None


def compacted_error(where: str) -> CompactedError:
    """Return the error of a build whose files changed between its plan and its commit."""
    return CompactedError(
        "files that the build replaces were compacted while it ran",
        where=where,
        next_step="Nothing was published. Headrace plans the build again.",
    )
