"""`metadata.erasures`: the log of erasures and their proofs, without values that identify the person.

It has a row for each erasure and table. The row is written before rows of the table are removed, so that messages which Kafka
still has and the lake no longer has are accounted for, and again when the erasure is proved.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, load_table, table_location
from headrace.iceberg.commits.commit import commit_once
from headrace.iceberg.rows.filters import column_is
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Array, Column, Primitive, Struct

ERASURES = TableName("metadata", "erasures")
_OFFSETS = Array(Struct((Column("partition", Primitive("int")), Column("offset", Primitive("long")))))
COLUMNS = (
    Column("erasure_id", Primitive("string")),
    Column("pipeline_name", Primitive("string")),
    Column("subjects", Array(Primitive("string"))),
    Column("request_ids", Array(Primitive("string"))),
    Column("table_name", Primitive("string")),
    Column("stream", Primitive("string")),
    Column("rows_removed", Primitive("long")),
    Column("rows_redacted", Primitive("long")),
    Column("offsets", _OFFSETS),
    Column("files_searched", Primitive("long")),
    Column("begun_at", Primitive("timestamp")),
    Column("proved_at", Primitive("timestamp")),
    Column("redacted_offsets", _OFFSETS),
)


@dataclass(frozen=True)
class Offset:
    partition: int
    offset: int


@dataclass(frozen=True)
class ErasedTable:
    """An erasure of one table. `offsets` are the Kafka offsets of the removed rows, in the topic of `stream`.

    `redacted_offsets` are the offsets of the rows that stayed with the person's values redacted.
    """

    erasure_id: str
    pipeline_name: str
    subjects: tuple[str, ...]
    request_ids: tuple[str, ...]
    table_name: str
    begun_at: datetime
    stream: str | None = None
    rows_removed: int = 0
    rows_redacted: int = 0
    offsets: tuple[Offset, ...] = ()
    files_searched: int = 0
    proved_at: datetime | None = None
    redacted_offsets: tuple[Offset, ...] = ()


def record_erasure(catalog: Catalog, settings: Settings, erasure_id: str, rows: Sequence[ErasedTable]) -> None:
    """Write an erasure's rows, replacing the existing ones. Idempotent by erasure id."""
    same = column_is("erasure_id", erasure_id)

    def commit() -> Table:
        table = ensure_table(catalog, ERASURES, columns=COLUMNS, location=table_location(settings, ERASURES))
        written = pa.Table.from_pylist([_as_row(row) for row in rows], schema=schema_to_pyarrow(table.schema()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyIceberg warns if there are no rows to replace
            table.overwrite(written, overwrite_filter=same)
        return table

    commit_once(commit, find=lambda: None, where=str(ERASURES))


def read_answered_requests(catalog: Catalog, pipeline_name: str) -> frozenset[str]:
    """Return the ids of the erasure requests that a pipeline has completed."""
    table = load_table(catalog, ERASURES)
    if table is None:
        return frozenset()
    scan = table.scan(row_filter=column_is("pipeline_name", pipeline_name), selected_fields=("request_ids",))
    return frozenset(request for row in scan.to_arrow().to_pylist() for request in row["request_ids"] or ())


def read_erased_offsets(catalog: Catalog, stream: str) -> list[tuple[int, int]]:
    """Return the partitions and offsets of a stream's erased rows."""
    table = load_table(catalog, ERASURES)
    if table is None:
        return []
    scan = table.scan(row_filter=column_is("stream", stream), selected_fields=("offsets",))
    return [(at["partition"], at["offset"]) for row in scan.to_arrow().to_pylist() for at in row["offsets"] or ()]


def read_redacted_offsets(catalog: Catalog, stream: str) -> list[tuple[int, int]] | None:
    """Return the partitions and offsets of a stream's redacted rows.

    Return None if an erasure by an earlier version redacted rows without recording their offsets.
    """
    table = load_table(catalog, ERASURES)
    if table is None:
        return []
    known = "redacted_offsets" in table.schema().column_names
    fields = ("rows_redacted", "redacted_offsets") if known else ("rows_redacted",)
    rows = table.scan(row_filter=column_is("stream", stream), selected_fields=fields).to_arrow().to_pylist()
    if any(row["rows_redacted"] and not row.get("redacted_offsets") for row in rows):
        return None
    return [(at["partition"], at["offset"]) for row in rows for at in row.get("redacted_offsets") or ()]


def _as_row(erased: ErasedTable) -> dict[str, object]:
    return {
        **asdict(erased),
        "subjects": list(erased.subjects),
        "request_ids": list(erased.request_ids),
        "offsets": [asdict(offset) for offset in erased.offsets],
        "redacted_offsets": [asdict(offset) for offset in erased.redacted_offsets],
    }
