"""Metadata files that a commit no longer needs.

A purge deletes a table's old metadata files at once, but the metadata log lists them until later commits push them out.
PyIceberg would then log a warning for each file that it can't delete again.
"""

from __future__ import annotations

from typing import TypeVar, cast

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

C = TypeVar("C", bound=Catalog)


def delete_old_metadata(catalog: Catalog, table: Table, committed: TableMetadata) -> None:
    """Delete the metadata files of `table` that are no longer in the log of `committed`, as the catalog's own commits do."""
    catalog._delete_old_metadata(table.io, table.metadata, committed)


class IdempotentDeletes:
    """Mix-in for a catalog: deleting a missing metadata file succeeds. Other failures are still logged."""

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        Catalog._delete_old_metadata(_IgnoresMissing(io), base, metadata)


def with_idempotent_deletes(catalog: type[C]) -> type[C]:
    """Return the catalog class with `IdempotentDeletes` mixed in."""
    return cast(type[C], type(f"Quiet{catalog.__name__}", (IdempotentDeletes, catalog), {}))


class _IgnoresMissing(FileIO):
    def __init__(self, io: FileIO) -> None:
        super().__init__(io.properties)
        self._io = io

    def new_input(self, location: str) -> InputFile:
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        try:
            self._io.delete(location)
        except FileNotFoundError:
            return
