"""`metadata.incremental_watermarks`: how far every table has read its inputs, for people and other engines.

It is a copy of the tables' ledgers and can be lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, load_table, table_location
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.ledgers.build import BuildLedger
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column, Primitive

WATERMARKS = TableName("metadata", "incremental_watermarks")
COLUMNS = (
    Column("source_table", Primitive("string")),
    Column("pipeline_name", Primitive("string")),
    Column("last_sync_timestamp", Primitive("timestamp")),
    Column("records_processed", Primitive("long")),
    Column("updated_at", Primitive("timestamp")),
)


def mirror_watermarks(
    catalog: Catalog, settings: Settings, pipeline: Pipeline, entries: Mapping[TableName, BuildLedger]
) -> None:
    """Replace a pipeline's watermarks: one row for each table and input.

    `pipeline_name` has the pipeline's and the table's name, with the namespace if the name is not unique in the pipeline.
    `last_sync_timestamp` is the commit time of the newest snapshot that was read, and `records_processed` counts the
    input's rows that the last build processed.
    """
    short = [table.table.name for table in pipeline.tables]
    built = {name: entry for name, entry in entries.items() if entry.build_id}
    read = {source for entry in built.values() for source in entry.reads}
    sources = {source: load_table(catalog, TableName.parse(source)) for source in read}
    rows = [
        row
        for name, entry in built.items()
        for row in _rows(sources, f"{pipeline.name}.{name.name if short.count(name.name) < 2 else name}", entry)
    ]

    def commit() -> Table:
        table = ensure_table(catalog, WATERMARKS, columns=COLUMNS, location=table_location(settings, WATERMARKS))
        written = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyIceberg warns if there are no rows to replace
            table.overwrite(written, overwrite_filter=f"pipeline_name LIKE '{pipeline.name}.%'")
        return table

    if rows:
        commit_once(commit, find=lambda: None, where=str(WATERMARKS))


def _rows(sources: Mapping[str, Table | None], name: str, entry: BuildLedger) -> Sequence[dict[str, object]]:
    rows = []
    for source, state in entry.reads.items():
        table = sources[source]
        snapshot = table.snapshot_by_id(state.snapshot_id) if table and state.snapshot_id else None
        read_at = snapshot.timestamp_ms * 1000 if snapshot else entry.built_at_us
        rows.append(
            {
                "source_table": source,
                "pipeline_name": name,
                "last_sync_timestamp": _moment(read_at),
                "records_processed": entry.rows_read.get(source, 0),
                "updated_at": _moment(entry.built_at_us),
            }
        )
    return rows


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, tz=timezone.utc)
