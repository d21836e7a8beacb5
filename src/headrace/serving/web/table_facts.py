"""Describe one table: its definition, its metadata, its files and a few rows."""

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
    """Return a table's definition, newest snapshots, expectations with the results of the last build, and lineage."""
    layer, stream = shown.layer, shown.stream
    partition_by = layer.partition_by if layer else stream.partition_by if stream else ()
    return {
        "name": str(shown.name),
        "pipeline": shown.pipeline.name,
        "made_by": shown.traced.made_by,
        "kind": layer.kind if layer else "landed",
        "about": layer.about if layer else f"The raw events of topic {stream.topic}." if stream else "",
        "file": shown.traced.file,
        "keys": list(layer.keys) if layer else [],
        "sequence_by": ", ".join(layer.sequence_by) or None if layer else None,
        "partition_by": [str(field) for field in partition_by],
        "columns": _columns(shown, table),
        "snapshots": [_snapshot(snapshot) for snapshot in _newest(table)],
        "expectations": _expectations(shown, table),
        "inputs": [_linked(read) for read in shown.lineage.inputs(shown.name)],
        "readers": [_linked(reader) for reader in shown.lineage.readers(shown.name)],
        "location": table.location() if table else None,
    }


def list_files(table: Table | None) -> dict[str, object]:
    """Return the count, size and rows of the current data files, and the largest files."""
    if table is None:
        return {"count": 0, "bytes": 0, "rows": 0, "files": []}
    tasks = list(table.scan().plan_files())
    largest = sorted(tasks, key=lambda task: -task.file.file_size_in_bytes)[:_FILES]
    folder = _plain(table.location()).rstrip("/") + "/"
    return {
        "count": len(tasks),
        "bytes": sum(task.file.file_size_in_bytes for task in tasks),
        "rows": sum(_rows(task) for task in tasks),
        "files": [
            {
                "path": _plain(task.file.file_path).removeprefix(folder),
                "rows": _rows(task),
                "bytes": task.file.file_size_in_bytes,
            }
            for task in largest
        ],
    }


def _rows(task: FileScanTask) -> int:
    """Return the number of rows of a data file, without its deleted rows."""
    return task.file.record_count - sum(deletes.record_count for deletes in task.delete_files)


def _plain(location: str) -> str:
    """Return a normalised location: Spark writes `file:/`, other engines `file:///`."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def read_sample(table: Table | None) -> Answer | None:
    """Return a few rows in no particular order; None if the table has no snapshot."""
    if table is None or table.current_snapshot() is None:
        return None
    rows = table.scan(limit=_SAMPLE).to_arrow()
    return make_answer(rows.drop_columns(sorted(hidden_columns(table))), most_rows=_SAMPLE)


def read_refused(catalog: Catalog, shown: ShownTable) -> Answer | None:
    """Return the table's newest rows in the quarantine, with their reasons and original bytes."""
    quarantine = load_table(catalog, QUARANTINE)
    if quarantine is None:
        return None
    columns = ("timestamp", "reason", "original_bytes", "topic", "partition", "offset", "checkpoint_id")
    # Safe to insert: the name is from the pipeline's files and has only letters, digits, underscores and dots.
    rows = quarantine.scan(row_filter=f"stream = '{shown.refused_as}'", selected_fields=columns).to_arrow()
    newest = rows.sort_by([("checkpoint_id", "descending"), ("timestamp", "descending")]).select(columns)
    return make_answer(newest, most_rows=_REFUSED)


def _columns(shown: ShownTable, table: Table | None) -> list[dict[str, object]]:
    """Return the columns of the table, else of its definition, each with its sources and expressions."""
    names = [column.name for column in shown.traced.columns]
    types: Mapping[str, tuple[str, bool]] = {}
    if table is not None:
        types = {field.name: (str(field.field_type), field.required) for field in table.schema().fields}
        names = list(shown_columns(table))
    described = []
    for name in names:
        traced = shown.traced.column(name)
        kind, required = types.get(name, ("", False))
        described.append(
            {
                "name": name,
                "type": kind,
                "required": required,
                "from": [str(source) for source in traced.sources] if traced else [],
                "how": (" · ".join(traced.expressions) or traced.note) if traced else "",
            }
        )
    return described


def _newest(table: Table | None) -> list[Snapshot]:
    snapshots = table.metadata.snapshots if table else []
    return sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms, reverse=True)[:_SNAPSHOTS]


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
    checked = {result.sentence: result for result in read_build(table).expectations} if shown.layer else {}
    described: list[dict[str, object]] = []
    for expectation in shown.layer.expectations if shown.layer else ():
        last = checked.get(expectation.sentence)
        described.append(
            {
                "sentence": expectation.sentence,
                "that": expectation.that,
                "on_failure": expectation.on_failure,
                "checked": last.checked if last else None,
                "failed": last.failed if last else None,
                "sample": last.sample if last else None,
            }
        )
    return described


def _linked(read: Input) -> dict[str, object]:
    return {"name": str(read.node), "role": read.role, "topic": isinstance(read.node, Topic)}
