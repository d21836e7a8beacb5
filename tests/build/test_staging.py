"""Stage tables from Debezium envelopes: readable values, one row for each change, columns that follow the source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import SpecError
from headrace.iceberg.catalog.tables import ensure_table, table_location
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.serving.sql.query import run_query
from headrace.sessions.building import build, open_lake, plan
from headrace.spec.model.types import Column, Primitive, Struct
from tests.build.layer_lake import LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def named(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "connect.name": name}


VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "total", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {
            "name": "rate",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "VariableScaleDecimal",
                    "namespace": "io.debezium.data",
                    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
                },
            ],
        },
        {"name": "born_on", "type": ["null", named("int", "io.debezium.time.Date")]},
        {"name": "created_at", "type": ["null", named("long", "io.debezium.time.MicroTimestamp")]},
        {"name": "seen_at", "type": ["null", named("string", "io.debezium.time.ZonedTimestamp")]},
        {"name": "opens", "type": ["null", named("long", "io.debezium.time.MicroTime")]},
        {"name": "days", "type": ["null", {"type": "array", "items": ["null", named("int", "io.debezium.time.Date")]}]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {"name": "sizes", "type": ["null", {"type": "array", "items": ["null", "int"]}]},
        {"name": "photo", "type": ["null", "bytes"]},
        {"name": "score", "type": ["null", "string"]},
        {"name": "source", "type": ["null", "string"]},
        {"name": "event_date", "type": ["null", "string"]},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", VALUE]},
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "ts_ms", "type": "long"},
                    {"name": "snapshot", "type": ["null", "string"]},
                    {"name": "txId", "type": ["null", "long"]},
                    {"name": "lsn", "type": ["null", "long"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
PIPELINE = """\
name: pond
about: a captured table
namespace: "{layer}.pond"
sources: {postgres: {database: pond, connectors: connectors, stage: stage_tables.yaml}}
streams:
  orders: {topic: pond.public.orders, format: debezium, schema: schemas/orders.avsc, table: raw.pond.orders}
"""
STAGE = """\
tables:
  orders:
    about: Orders, change by change.
    event_date: created_at
    partition_by: [event_date]
    columns:
      id: bigint
      score: decimal(5, 2)
      rate: {}
    expect:
      an id is positive: id > 0
"""
FILES = {
    "pipeline.yml": PIPELINE,
    "stage_tables.yaml": STAGE,
    "schemas/orders.avsc": json.dumps(ENVELOPE),
    "connectors/source.template.json": '{"name": "pond", "config": {}}',
    "shape/orders.sql": "/*\nkeys: [id]\nsequence_by: [_sequence, kafka_offset]\napply_as_deletes: _op = 'd'\n*/\n"
    "SELECT * FROM stage.pond.orders",
}
GONE = "__debezium_unavailable_value"
NUMBERS = ("0", "12.50", "-0.000001", "99999999999999999999.123456789012345678", "-18446744073709551617", "1E+3")


@dataclass(frozen=True)
class Change:
    """A change of one row; `op` None is a tombstone."""

    op: str | None
    lsn: int = 0
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None

    def row(self) -> dict[str, Any]:
        if self.op is None:
            return {}
        source = {"ts_ms": 1_767_225_600_000 + self.lsn, "snapshot": "false", "txId": 7, "lsn": self.lsn}
        return {"op": self.op, "ts_ms": 1_767_225_600_999, "source": source, "before": self.before, "after": self.after}


def number(text: str) -> dict[str, object]:
    """A number as Debezium sends one of any scale."""
    sign, digits, exponent = Decimal(text).as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    assert isinstance(exponent, int)
    return {"scale": -exponent, "value": whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)}


WHOLE = {
    "id": 1,
    "note": "hello",
    "total": Decimal("12.50"),
    "born_on": -1,
    "created_at": 1_700_000_000_123_456,
    "seen_at": "2026-01-02T03:04:05.678901+02:00",
    "opens": 3_723_000_001,
    "days": [0, None, 20_000],
    "tags": ["a", None],
    "sizes": [1, 2],
    "photo": b"\x00\xff",
    "score": "1.50",
    "source": "web",
    "event_date": "theirs",
}


def rows(layer_lake: LayerLake, table: str = "stage.pond.orders", order: str = "kafka_offset") -> list[dict[str, Any]]:
    stored: list[dict[str, Any]] = run_query(layer_lake.catalog, f"SELECT * FROM {table} ORDER BY {order}").to_pylist()
    return stored


def test_stage_tables_have_a_row_for_every_change(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land(
        [
            Change("r", 1, after=WHOLE),
            Change("u", 2, after={**WHOLE, "note": GONE, "photo": GONE.encode(), "tags": [GONE], "sizes": list(GONE.encode())}),
            Change("d", 3, before={"id": 1}),
            Change(None),
            Change("t", 4),
            *(Change("c", 10 + at, after={"id": 10 + at, "rate": number(written)}) for at, written in enumerate(NUMBERS)),
            Change("c", 30, after={"id": 30, "score": "1.501"}),
            Change("c", 31, after={"id": 31, "seen_at": "soon"}),
            Change("c", 32, after={"id": 32, "rate": number("0.1234567890123456789")}),
            Change("c", 33, after={"id": 33, "note": GONE}),
        ]
    )
    layer_lake.build()
    first, updated, deleted, truncated, *others = rows(layer_lake)
    shown = {name: first[name] for name in WHOLE if name != "event_date"}
    moment = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=timezone.utc)
    assert shown == {
        **{name: value for name, value in WHOLE.items() if name != "event_date"},
        "born_on": date(1969, 12, 31),
        "created_at": moment,
        "seen_at": datetime(2026, 1, 2, 1, 4, 5, 678901, tzinfo=timezone.utc),
        "opens": "01:02:03.000001",
        "days": [date(1970, 1, 1), None, date(2024, 10, 4)],
        "score": Decimal("1.50"),
    }
    assert (first["event_date_"], first["event_date"], first["event_date_source"]) == ("theirs", moment.date(), "created_at")
    assert (first["_op"], first["_lsn"], first["_tx_id"], first["_tx_order"], first["_snapshot"]) == ("r", 1, 7, None, "false")
    assert first["_sequence"] == "0000000000000001/0000000000000000", "a snapshot is taken right behind a commit"
    assert first["_committed_at"] == datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=timezone.utc)
    assert (first["_unchanged"], first["kafka_partition"], "_unreadable" in first) == ([], 0, False)
    assert sorted(updated["_unchanged"]) == ["note", "photo", "sizes", "tags"]
    assert [updated[name] for name in ("note", "photo", "tags", "sizes", "source")] == [None, None, None, None, "web"]
    assert (deleted["_op"], deleted["id"], deleted["event_date"], deleted["event_date_source"]) == (
        "d",
        1,
        date(2026, 1, 1),
        "ts_ms",
    )
    assert (truncated["_op"], truncated["id"], truncated["kafka_offset"]) == ("t", None, 4)
    assert [other["rate"] for other in others[: len(NUMBERS)]] == [Decimal(written) for written in NUMBERS]
    assert [(other["id"], other["note"]) for other in others[len(NUMBERS) :]] == [(33, GONE)], "an insert says what it says"
    refused = layer_lake.catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
    assert sorted((json.loads(row["original_bytes"])["id"], row["reason"]) for row in refused) == [
        (number, "every value can be read as its type") for number in (30, 31, 32)
    ]


def test_new_column_reaches_the_table_without_a_refresh(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([Change("c", 1, after=WHOLE)])
    layer_lake.build()
    before = layer_lake.catalog.load_table("stage.pond.orders").metadata
    stream = layer_lake.pipeline.streams[0]
    value = Struct(
        (Column("id", Primitive("long")), Column("paid_at", Primitive("long"), doc="io.debezium.time.MicroTimestamp"))
    )
    raw = ensure_table(
        layer_lake.catalog,
        stream.table,
        columns=(Column("before", value), Column("after", value)),
        location=table_location(layer_lake.settings, stream.table),
    )
    assert raw.schema().find_field("after.paid_at").doc == "io.debezium.time.MicroTimestamp"
    layer_lake._raw[stream.name] = layer_lake.catalog.load_table(str(stream.table))
    layer_lake.land([Change("c", 2, after={"id": 2, "paid_at": 1_700_000_000_000_000})])
    lake = open_lake(layer_lake.settings, layer_lake.pipeline, spark)
    actions = {
        str(planned.table.table): planned.action
        for planned in plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)
    }
    assert actions["stage.pond.orders"] == "increment"
    assert [outcome.error for outcome in build(lake)] == [None, None]
    assert [row["paid_at"] for row in rows(layer_lake)] == [None, datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)]
    after = layer_lake.catalog.load_table("stage.pond.orders").metadata
    assert (after.table_uuid, len(after.snapshots)) == (before.table_uuid, len(before.snapshots) + 1)


def test_invalid_cast_error_has_its_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"stage_tables.yaml:9: Spark refuses the query"):
        LayerLake(tmp_path, spark, {**FILES, "stage_tables.yaml": STAGE.replace("rate: {}", "sizes: date")})
