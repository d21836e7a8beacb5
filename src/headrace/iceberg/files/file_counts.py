"""Count values in a table's current rows, reading each of its data files once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pyiceberg.expressions import NotNull, Reference
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, FileScanTask, Table

_MOST_FILES = 20_000


class FileCounts:
    """Counts the names that `names` returns for each non-null value of a column.

    A data file and the delete files that apply to it never change, so their counts are cached: after a commit, only new files
    are read. Files without a value are skipped by their metrics.
    """

    def __init__(self, column: str, names: Callable[[Any], Iterable[str]]) -> None:
        self._column = column
        self._names = names
        self._files: dict[tuple[str, ...], Mapping[str, int]] = {}
        self._totals: dict[str, tuple[int, Mapping[str, int]]] = {}

    def total(self, table: Table | None) -> Mapping[str, int]:
        """Return the counts over the table's current rows."""
        snapshot = table.current_snapshot() if table else None
        if table is None or snapshot is None:
            return {}
        uuid = str(table.metadata.table_uuid)
        if uuid not in self._totals or self._totals[uuid][0] != snapshot.snapshot_id:
            self._totals[uuid] = snapshot.snapshot_id, self._add(table)
        return self._totals[uuid][1]

    def _add(self, table: Table) -> Mapping[str, int]:
        scan = table.scan(row_filter=NotNull(term=Reference(self._column)), selected_fields=(self._column,))
        total: Counter[str] = Counter()
        for task in scan.plan_files():
            total.update(self._count(table, scan, task))
        return MappingProxyType(dict(total))

    def _count(self, table: Table, scan: DataScan, task: FileScanTask) -> Mapping[str, int]:
        key = (task.file.file_path, *sorted(deletes.file_path for deletes in task.delete_files))
        counts = self._files.get(key)
        if counts is None:
            if len(self._files) >= _MOST_FILES:
                self._files.clear()
            reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
            values = (value for batch in reader.to_record_batches([task]) for value in batch.column(0).to_pylist())
            counts = self._files[key] = dict(Counter(name for value in values for name in self._names(value)))
        return counts
