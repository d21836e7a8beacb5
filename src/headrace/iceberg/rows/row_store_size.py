"""The size of each table's rows and indexes in the local row store, from the names of its files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.iceberg.rows.arrow_cache import SUFFIX


@dataclass(frozen=True)
class StoredSize:
    """Bytes on the local disk: rows of data files, and the indexes on them."""

    rows: int = 0
    indexes: int = 0

    @property
    def total(self) -> int:
        return self.rows + self.indexes


def stored_sizes(folder: Path) -> Mapping[str, StoredSize]:
    """Return the stored size of every table by table id, without creating or reading files.

    A file is named `table-file.arrow`, or `table-file-columns.arrow` for an index (row_store.py). Rows of files that the table
    no longer has count until they are evicted.
    """
    sizes: dict[str, StoredSize] = {}
    for name, size in _files_in(folder):
        table, *rest = name.removesuffix(SUFFIX).split("-")
        known, is_index = sizes.get(table, StoredSize()), len(rest) > 1
        sizes[table] = StoredSize(known.rows + (0 if is_index else size), known.indexes + (size if is_index else 0))
    return sizes


def _files_in(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the names and sizes of complete files in a store's folders, skipping files that are deleted meanwhile."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files_in(Path(entry.path))
        elif entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
            try:
                yield entry.name, entry.stat().st_size
            except OSError:
                continue
