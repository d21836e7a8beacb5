"""Detect conflicts between a row delta and commits since its files were read."""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from headrace.iceberg.commits.build_attempt import compacted_error
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.files.manifests import live_files, may_apply, target_of


def check_conflicts(table: Table, delta: RowDelta) -> None:
    """Raise a CompactedError unless `delta` can be committed on top of the table's current snapshot.

    Every removed file and every data file with new deletes must still be live as in `delta.snapshot_id`, and no delete file
    added since then may apply to one of these data files. Only manifests that differ between the two snapshots are read.
    """
    current = table.current_snapshot()
    if not delta.changes_files or (current is not None and current.snapshot_id == delta.snapshot_id):
        return
    read = table.snapshot_by_id(delta.snapshot_id) if delta.snapshot_id is not None else None
    where = ".".join(table.name())
    if current is None or read is None:
        raise compacted_error(where)  # rolled back, or the snapshot was expired: the two can't be compared
    before, now = set(read.manifests(table.io)), set(current.manifests(table.io))
    vanished, appeared = live_files(before - now, table.io), live_files(now - before, table.io)
    targets = {str(target_of(file)): file for file in delta.deletes}
    changed = {**targets, **{file.file_path: file for file in delta.removed}}
    needed = {*changed, *(file.file_path for file in delta.outdated)}
    if any(path in vanished and path not in appeared for path in needed):
        raise compacted_error(where)
    new_deletes = [file for path, file in appeared.items() if path not in vanished and file.content != DataFileContent.DATA]
    if any(may_apply(file, path, beside=beside) for file in new_deletes for path, beside in changed.items()):
        raise compacted_error(where)
