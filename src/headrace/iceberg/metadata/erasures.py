"""`metadata.erasures`: who was erased, from where, when and how it was proved, in words that tell nobody who it was.

A row for each erasure and table. It is written before rows of the table go, so that what Kafka still has and the lake has no
longer is accounted for, and again when all is proved.
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
    """What an erasure did to a table. `offsets` are where the rows that went came from, `stream` is whose offsets they are.

    `redacted_offsets` are where the rows came from that stayed, without what names the person.
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
    """Put an erasure's rows in the place of those that are there. Idempotent by erasure."""
    same = column_is("erasure_id", erasure_id)

    def commit() -> Table:
        table = ensure_table(catalog, ERASURES, columns=COLUMNS, location=table_location(settings, ERASURES))
        made = pa.Table.from_pylist([_as_row(each) for each in rows], schema=schema_to_pyarrow(table.schema()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyIceberg's, where none are there yet
            table.overwrite(made, overwrite_filter=same)
        return table

    commit_once(commit, find=lambda: None, where=str(ERASURES))


def read_answered_requests(catalog: Catalog, pipeline_name: str) -> frozenset[str]:
    """Return the ids of the requests that erasures of a pipeline have answered."""
    table = load_table(catalog, ERASURES)
    if table is None:
        return frozenset()
    scan = table.scan(row_filter=column_is("pipeline_name", pipeline_name), selected_fields=("request_ids",))
    return frozenset(each for row in scan.to_arrow().to_pylist() for each in row["request_ids"] or ())


def read_erased_offsets(catalog: Catalog, stream: str) -> list[tuple[int, int]]:
    """Return the partitions and offsets of a stream whose rows were erased."""
    table = load_table(catalog, ERASURES)
    if table is None:
        return []
    scan = table.scan(row_filter=column_is("stream", stream), selected_fields=("offsets",))
    return [(at["partition"], at["offset"]) for row in scan.to_arrow().to_pylist() for at in row["offsets"] or ()]


def read_redacted_offsets(catalog: Catalog, stream: str) -> list[tuple[int, int]] | None:
    """Return the partitions and offsets of a stream whose rows stayed, without what names a person.

    None where an erasure of before this was kept redacted rows: then nobody knows which.
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


def _as_row(each: ErasedTable) -> dict[str, object]:
    return {
        **asdict(each),
        "subjects": list(each.subjects),
        "request_ids": list(each.request_ids),
        "offsets": [asdict(one) for one in each.offsets],
        "redacted_offsets": [asdict(one) for one in each.redacted_offsets],
    }
