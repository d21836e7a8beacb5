"""Whether a row delta still fits the table: what others committed since its files were read."""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from headrace.iceberg.commits.build_attempt import compacted_error
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.files.manifests import live_files, may_apply, target_of


def check_conflicts(table: Table, delta: RowDelta) -> None:
    """Raise a CompactedError unless `delta` can be committed on top of the table's current snapshot.

    Every file that leaves and every data file that gets deletes must be live as in `delta.snapshot_id`, and no delete file
    that came since may apply to one of these data files. Only manifests that differ between the two snapshots are read.
    """
    current = table.current_snapshot()
    if not delta.changes_files or (current is not None and current.snapshot_id == delta.snapshot_id):
        return
    read = table.snapshot_by_id(delta.snapshot_id) if delta.snapshot_id is not None else None
    where = ".".join(table.name())
    if current is None or read is None:
        raise compacted_error(where)  # rolled back, or the history is thinned: what was read can't be compared any more
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
