"""Changes of a sample as Connect's JsonConverter writes them: a payload, and the schema that an .avsc says."""

from __future__ import annotations

import json
from typing import Any

_TYPES = {"int": "int32", "long": "int64", "float": "float", "double": "double"}


def change_values(avsc: str, lines: list[str]) -> list[bytes | None]:
    """Return a message for each line, which is a payload or, for a tombstone, null."""
    schema = json.dumps(connect_schema(json.loads(avsc), {}))
    return [None if line == "null" else f'{{"schema": {schema}, "payload": {line}}}'.encode() for line in lines]


def connect_schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Return an Avro type as Connect has it; named types are written out wherever they are used."""
    if isinstance(kind, list):
        return {**connect_schema(next(option for option in kind if option != "null"), named), "optional": True}
    if isinstance(kind, str):
        return named.get(kind) or {"type": _TYPES.get(kind, kind), "optional": False}
    schema: dict[str, Any] = {"optional": False}
    if "connect.name" in kind:
        schema |= {"name": kind["connect.name"], "version": kind.get("connect.version", 1)}
    if "connect.parameters" in kind:
        schema["parameters"] = kind["connect.parameters"]
    if kind["type"] == "record":
        fields = [{**connect_schema(field["type"], named), "field": field["name"]} for field in kind["fields"]]
        schema |= {"type": "struct", "fields": fields}
        named |= {kind["name"]: schema, f"{kind.get('namespace', '')}.{kind['name']}": schema}
    elif kind["type"] == "array":
        schema |= {"type": "array", "items": connect_schema(kind["items"], named)}
    else:
        schema["type"] = kind.get("connect.type", _TYPES.get(kind["type"], kind["type"]))
    return schema
