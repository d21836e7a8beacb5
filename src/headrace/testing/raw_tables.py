"""Append rows to a raw table as landing does, without Kafka: one checkpoint with one file."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from headrace.iceberg.commits.append import append_checkpoint
from headrace.iceberg.files.storage import Storage
from headrace.iceberg.files.write import TableFiles, TableFormat
from headrace.iceberg.ledgers.landing import Ledger, read_ledger

LANDED_AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The time of all messages. It is fixed, so that a test gives the same rows every time."""


def append_rows(catalog: Catalog, table: Table, rows: Sequence[Mapping[str, object]], *, topic: str) -> Table:
    """Return the table with these rows as its next checkpoint.

    Columns that a row lacks are null. The Kafka coordinates are those of consecutive messages, unless a row has its own.
    """
    planned = read_ledger(table)
    checkpoint, offset = planned.checkpoint_id + 1, planned.offsets.get(0, 0)
    landed = [
        {
            "kafka_topic": topic,
            "kafka_partition": 0,
            "kafka_offset": offset + index,
            "kafka_timestamp": LANDED_AT,
            **row,
            "checkpoint_id": checkpoint,
        }
        for index, row in enumerate(rows)
    ]
    schema, storage = table.schema(), Storage.of(table.io.properties)
    files = TableFiles(
        TableFormat(schema, table.spec()), folder=f"{table.location()}/output", name=uuid.uuid4().hex, storage=storage
    )
    files.write(pa.Table.from_pylist(landed, schema=schema_to_pyarrow(schema)))
    new = Ledger(checkpoint, {0: offset + len(rows)}, writer=str(uuid.uuid4()))
    return append_checkpoint(catalog, table, files=files.close(), planned=planned, new=new)
