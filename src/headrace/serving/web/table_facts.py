"""What there is to say of one table: how it is defined, what its metadata tells, and a few of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone

from pyiceberg.catalog import Catalog
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.files.row_counts import rows_after
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.iceberg.ledgers.landing import Ledger
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.iceberg.schema.added_columns import hidden_columns, shown_columns
from headrace.serving.sql.answer import Answer, make_answer
from headrace.serving.web.context import ShownTable
from headrace.spec.sql.lineage import Input, Topic

_SNAPSHOTS = 20
_FILES = 100
_SAMPLE = 20
_REFUSED = 50


def describe_table(shown: ShownTable, table: Table | None) -> dict[str, object]:
    """Return what a table is, its newest snapshots, its expectations as its last build found them, and its lineage."""
    layer, stream = shown.layer, shown.stream
    partition_by = layer.partition_by if layer else stream.partition_by if stream else ()
    return {
        "name": str(shown.name),
        "pipeline": shown.pipeline.name,
        "made_by": shown.traced.made_by,
        "kind": layer.kind if layer else "landed",
        "about": layer.about if layer else f"The events of topic {stream.topic}, as they came." if stream else "",
        "file": shown.traced.file,
        "keys": list(layer.keys) if layer else [],
        "sequence_by": ", ".join(layer.sequence_by) or None if layer else None,
        "partition_by": [str(each) for each in partition_by],
        "columns": _columns(shown, table),
        "snapshots": [_snapshot(each) for each in _newest(table)],
        "expectations": _expectations(shown, table),
        "inputs": [_linked(each) for each in shown.lineage.inputs(shown.name)],
        "readers": [_linked(each) for each in shown.lineage.readers(shown.name)],
        "location": table.location() if table else None,
    }


def list_files(table: Table | None) -> dict[str, object]:
    """Return the data files of the table as it is now: how many, how large, and the largest of them."""
    if table is None:
        return {"count": 0, "bytes": 0, "rows": 0, "files": []}
    tasks = list(table.scan().plan_files())
    largest = sorted(tasks, key=lambda each: -each.file.file_size_in_bytes)[:_FILES]
    folder = _plain(table.location()).rstrip("/") + "/"
    return {
        "count": len(tasks),
        "bytes": sum(each.file.file_size_in_bytes for each in tasks),
        "rows": sum(_rows(each) for each in tasks),
        "files": [
            {
                "path": _plain(each.file.file_path).removeprefix(folder),
                "rows": _rows(each),
                "bytes": each.file.file_size_in_bytes,
            }
            for each in largest
        ],
    }


def _rows(task: FileScanTask) -> int:
    """Return how many rows a data file has, less those that are deleted in it."""
    return task.file.record_count - sum(each.record_count for each in task.delete_files)


def _plain(location: str) -> str:
    """Return a location without what engines write differently: Spark's `file:/` is others' `file:///`."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def read_sample(table: Table | None) -> Answer | None:
    """Return a few rows, whichever are read first; None where there are none to read."""
    if table is None or table.current_snapshot() is None:
        return None
    rows = table.scan(limit=_SAMPLE).to_arrow()
    return make_answer(rows.drop_columns(sorted(hidden_columns(table))), most_rows=_SAMPLE)


def read_refused(catalog: Catalog, shown: ShownTable) -> Answer | None:
    """Return the newest rows of the table that are in the quarantine, with their reasons and original bytes."""
    quarantine = load_table(catalog, QUARANTINE)
    if quarantine is None:
        return None
    columns = ("timestamp", "reason", "original_bytes", "topic", "partition", "offset", "checkpoint_id")
    # The name is one of ours, from the pipeline's files: letters, digits and underscores.
    found = quarantine.scan(row_filter=f"stream = '{shown.refused_as}'", selected_fields=columns).to_arrow()
    newest = found.sort_by([("checkpoint_id", "descending"), ("timestamp", "descending")]).select(columns)
    return make_answer(newest, most_rows=_REFUSED)


def _columns(shown: ShownTable, table: Table | None) -> list[dict[str, object]]:
    """Return the columns that the table has, or else those that its file tells, each with what it is made of."""
    names = [each.name for each in shown.traced.columns]
    types: Mapping[str, tuple[str, bool]] = {}
    if table is not None:
        types = {each.name: (str(each.field_type), each.required) for each in table.schema().fields}
        names = list(shown_columns(table))
    found = []
    for name in names:
        traced = shown.traced.column(name)
        kind, required = types.get(name, ("", False))
        found.append(
            {
                "name": name,
                "type": kind,
                "required": required,
                "from": [str(each) for each in traced.sources] if traced else [],
                "how": (" · ".join(traced.expressions) or traced.note) if traced else "",
            }
        )
    return found


def _newest(table: Table | None) -> list[Snapshot]:
    snapshots = table.metadata.snapshots if table else []
    return sorted(snapshots, key=lambda each: each.timestamp_ms, reverse=True)[:_SNAPSHOTS]


def _snapshot(snapshot: Snapshot) -> dict[str, object]:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    landed = Ledger.from_json(summary[ledger.KEY]) if ledger.KEY in summary else None
    built = BuildLedger.from_json(summary[build_ledger.KEY]) if build_ledger.KEY in summary else None
    by = f"checkpoint {landed.checkpoint_id}" if landed else f"build {built.build_id}" if built else ""
    return {
        "id": str(snapshot.snapshot_id),
        "at": datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc).isoformat(),
        "operation": snapshot.summary.operation.value if snapshot.summary else "",
        "by": by,
        "seconds": (landed.seconds if landed else built.seconds if built else 0) or None,
        "phases": asdict(built.phases) if built and built.phases else None,
        "added_rows": int(summary.get("added-records", 0)),
        "deleted_rows": int(summary.get("deleted-records", 0))
        + int(summary.get("added-position-deletes", 0))
        - int(summary.get("removed-position-deletes", 0)),
        "total_rows": rows_after(snapshot),
        "added_files": int(summary.get("added-data-files", 0)),
        "total_files": int(summary.get("total-data-files", 0)),
    }


def _expectations(shown: ShownTable, table: Table | None) -> list[dict[str, object]]:
    checked = {each.sentence: each for each in read_build(table).expectations} if shown.layer else {}
    found: list[dict[str, object]] = []
    for each in shown.layer.expectations if shown.layer else ():
        last = checked.get(each.sentence)
        found.append(
            {
                "sentence": each.sentence,
                "that": each.that,
                "otherwise": each.otherwise,
                "checked": last.checked if last else None,
                "failed": last.failed if last else None,
                "sample": last.sample if last else None,
            }
        )
    return found


def _linked(read: Input) -> dict[str, object]:
    return {"name": str(read.node), "role": read.role, "topic": isinstance(read.node, Topic)}
