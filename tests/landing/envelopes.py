"""Change events as Debezium writes them: Avro with schema ids, and JSON with inline schemas."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro

from headrace.errors import NotFoundError
from headrace.kafka.schemas import Registry
from headrace.spec.loading.avro import parse_avro
from headrace.spec.model.envelopes import all_optional
from headrace.spec.model.pipeline import Stream, TableName
from headrace.spec.problems import Place, Problems

CONNECT = "org.apache.kafka.connect.data."
VARIABLE = "io.debezium.data.VariableScaleDecimal"


@dataclass(frozen=True)
class Kind:
    """A column's type in both formats. `connect` has Kafka Connect's type and its parameters."""

    avro: Any
    connect: Mapping[str, Any]


def kind(avro: Any, connect: str, name: str | None = None, **more: Any) -> Kind:
    """Return a type. Connect's name for it is an annotation in the Avro schema."""
    if name is None:
        return Kind(avro, {"type": connect, **more})
    said = avro if isinstance(avro, dict) else {"type": avro}
    return Kind({**said, "connect.version": 1, "connect.name": name}, {"type": connect, "name": name, "version": 1, **more})


def decimal(precision: int, scale: int) -> Kind:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    avro = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale, "connect.parameters": parameters}
    return kind(avro, "bytes", CONNECT + "Decimal", parameters=parameters)


INT, LONG, TEXT = kind("int", "int32"), kind("long", "int64"), kind("string", "string")
SHORT = Kind({"type": "int", "connect.type": "int16"}, {"type": "int16"})
FLOAT, DOUBLE, FLAG, BYTES = (
    kind("float", "float"),
    kind("double", "double"),
    kind("boolean", "boolean"),
    kind("bytes", "bytes"),
)
MICROS = kind("long", "int64", "io.debezium.time.MicroTimestamp")
ZONED = kind("string", "string", "io.debezium.time.ZonedTimestamp")
MILLIS = kind({"type": "long", "logicalType": "timestamp-millis"}, "int64", CONNECT + "Timestamp")
DAY = kind({"type": "int", "logicalType": "date"}, "int32", CONNECT + "Date")
TIME_OF_DAY = kind({"type": "int", "logicalType": "time-millis"}, "int32", CONNECT + "Time")
UUID = kind("string", "string", "io.debezium.data.Uuid")
TEXTS = Kind({"type": "array", "items": ["null", "string"]}, {"type": "array", "items": {"type": "string", "optional": True}})
INTS = Kind({"type": "array", "items": ["null", "int"]}, {"type": "array", "items": {"type": "int32", "optional": True}})
PAIRS = Kind(
    {"type": "map", "values": ["null", "string"]},
    {"type": "map", "keys": {"type": "string", "optional": False}, "values": {"type": "string", "optional": True}},
)
ANY_SCALE = Kind(
    {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    },
    {
        "type": "struct",
        "name": VARIABLE,
        "fields": [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ],
    },
)

SOURCE = {"version": TEXT, "name": TEXT, "ts_ms": LONG, "snapshot": TEXT, "db": TEXT, "txId": LONG, "lsn": LONG}
REQUIRED = {"version", "name", "ts_ms", "db"}
TRANSACTION = {"id": TEXT, "total_order": LONG, "data_collection_order": LONG}


@dataclass(frozen=True)
class Table:
    """A table of Postgres, by the columns of its change events. All but `id` are nullable."""

    columns: Mapping[str, Kind]

    @property
    def avsc(self) -> str:
        value = _record("Value", self.columns, required={"id"})
        source = _record("Source", SOURCE, required=REQUIRED, namespace="io.debezium.connector.postgresql")
        block = _record("block", TRANSACTION, required=set(TRANSACTION), namespace="event")
        fields = {
            "before": ["null", value],
            "after": ["null", "Value"],
            "source": source,
            "transaction": ["null", block],
            "op": "string",
            "ts_ms": ["null", "long"],
        }
        envelope = {"type": "record", "name": "Envelope", "namespace": "shop.public.things"}
        return json.dumps({**envelope, "fields": [{"name": name, "type": fields[name]} for name in fields]})

    @property
    def connect(self) -> dict[str, Any]:
        fields = [
            _struct("before", self.columns, required={"id"}, optional=True),
            _struct("after", self.columns, required={"id"}, optional=True),
            _struct("source", SOURCE, required=REQUIRED),
            _struct("transaction", TRANSACTION, required=set(TRANSACTION), optional=True),
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ]
        return {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.things.Envelope", "version": 2}

    @property
    def stream(self) -> Stream:
        columns = all_optional(
            parse_avro(self.avsc.replace("time-millis", "none"), place=Place("things.avsc", "test"), problems=Problems())
        )
        return Stream("things", "things", 1, "debezium", columns, TableName("raw", "things"))

    def framed(self, event: Mapping[str, Any], *, schema_id: int) -> bytes:
        """Return the change in Avro, with days and timestamps as numbers."""
        out = io.BytesIO()
        plain = self.avsc.replace('"logicalType": "t', '"ignored": "t').replace('"logicalType": "date"', '"ignored": "date"')
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(plain)), event)
        return b"\x00" + schema_id.to_bytes(4, "big") + out.getvalue()

    def wrapped(self, event: Mapping[str, Any]) -> bytes:
        """Return the change in JSON."""
        return json.dumps({"schema": self.connect, "payload": _in_json(event)}).encode()


def change(after: Mapping[str, Any] | None, *, before: Mapping[str, Any] | None = None, lsn: int = 1) -> dict[str, Any]:
    """Return the envelope of a change."""
    source = {"version": "3.6.2.Final", "name": "shop", "ts_ms": 1_771_963_198_501 + lsn, "snapshot": "false", "db": "shop"}
    transaction = {"id": f"7:{lsn}", "total_order": lsn, "data_collection_order": 1}
    return {
        "before": before,
        "after": after,
        "source": {**source, "txId": 700 + lsn, "lsn": lsn},
        "transaction": transaction if lsn % 2 else None,
        "op": "d" if after is None else "c" if before is None else "u",
        "ts_ms": 1_771_963_199_000 + lsn,
    }


class Schemas(Registry):
    """A registry with these schemas that is always available."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def schema(self, schema_id: int) -> str:
        if not 1 <= schema_id <= len(self._tables):
            raise NotFoundError(f"the registry has no schema {schema_id}")
        return self._tables[schema_id - 1].avsc


def _record(name: str, columns: Mapping[str, Kind], *, required: set[str], namespace: str = "") -> dict[str, Any]:
    written: list[str] = []
    fields = []
    for column, kind in columns.items():
        avro = kind.avro
        if isinstance(avro, dict) and "namespace" in avro:
            avro, written = (VARIABLE, written) if VARIABLE in written else (avro, [*written, VARIABLE])
        fields.append({"name": column, "type": avro if column in required else ["null", avro]})
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}


def _struct(name: str, columns: Mapping[str, Kind], *, required: set[str], optional: bool = False) -> dict[str, Any]:
    fields = [{**kind.connect, "optional": column not in required, "field": column} for column, kind in columns.items()]
    return {"type": "struct", "fields": fields, "optional": optional, "name": f"shop.{name}", "field": name}


def _in_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _in_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_json(item) for item in value]
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        value = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
