"""Read schemas as Kafka Connect's JsonConverter writes them. The columns are those of the same schema in Avro."""

from __future__ import annotations

from headrace.spec.model.columns import name_problem
from headrace.spec.model.types import MAX_PRECISION, Array, Column, ColumnType, Decimal, Map, Primitive, PrimitiveName, Struct

_PRIMITIVES: dict[str, PrimitiveName] = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "binary",
}
_LOGICAL: dict[tuple[str, str], PrimitiveName] = {
    ("int32", "org.apache.kafka.connect.data.Date"): "date",
    ("int64", "org.apache.kafka.connect.data.Timestamp"): "timestamp",
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


class ConnectSchemaError(Exception):
    """A schema that can't be converted to columns. The message says why."""


def connect_columns(schema: object) -> tuple[Column, ...]:
    """Return the columns of a struct's schema. A logical type that Avro lacks becomes the type that it is stored as."""
    struct = _type(schema, path="")
    if not isinstance(struct, Struct):
        raise ConnectSchemaError(f"its schema is {struct}, not a struct")
    return struct.columns


def _type(schema: object, *, path: str) -> ColumnType:
    if not isinstance(schema, dict):
        raise ConnectSchemaError(f"the schema of `{path}` is not an object" if path else "its schema is not an object")
    kind, name = schema.get("type"), schema.get("name")
    if kind == "struct":
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise ConnectSchemaError(f"struct `{path}` has no fields")
        return Struct(_columns(fields, path=path))
    if kind == "array":
        return Array(_type(schema.get("items"), path=f"{path}.element"))
    if kind == "map":
        keys = schema.get("keys")
        if not isinstance(keys, dict) or keys.get("type") != "string" or keys.get("optional"):
            raise ConnectSchemaError(f"`{path}` is a map whose keys are not strings")
        return Map(_type(schema.get("values"), path=f"{path}.value"))
    if kind == "bytes" and name == _DECIMAL:
        return _decimal(schema.get("parameters"), path=path)
    if not isinstance(kind, str) or kind not in _PRIMITIVES:
        raise ConnectSchemaError(f"`{path}` has the unknown type {kind}")
    return Primitive(_LOGICAL.get((kind, str(name)), _PRIMITIVES[kind]))


def _columns(fields: list[object], *, path: str) -> tuple[Column, ...]:
    columns: list[Column] = []
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("field"), str):
            raise ConnectSchemaError(f"a field of `{path}` has no name")
        name = field["field"]
        problem = name_problem(name, taken=[column.name for column in columns], nested=bool(path))
        if problem:
            raise ConnectSchemaError(problem[0])
        at = f"{path}.{name}" if path else name
        columns.append(Column(name, _type(field, path=at), required=not field.get("optional", False), doc=_meaning(field)))
    return tuple(columns)


def _meaning(schema: object) -> str | None:
    """Return the schema's name, which gives the meaning of its values. For an array, return that of its elements."""
    if not isinstance(schema, dict) or schema.get("type") == "struct":
        return None
    if schema.get("type") == "array":
        inner = _meaning(schema.get("items"))
        return f"array<{inner}>" if inner else None
    name = schema.get("name")
    return name if isinstance(name, str) else None


def _decimal(parameters: object, *, path: str) -> Decimal:
    """Return the decimal's type. Without a precision, it could exceed what a table can hold, so it is an error."""
    known = parameters if isinstance(parameters, dict) else {}
    try:
        precision, scale = int(known["connect.decimal.precision"]), int(known["scale"])
    except (KeyError, ValueError):
        raise ConnectSchemaError(f"`{path}` is a decimal without a precision and a scale") from None
    if not 0 <= scale <= precision <= MAX_PRECISION:
        raise ConnectSchemaError(f"`{path}` is decimal({precision},{scale}), which a table can't hold")
    return Decimal(precision, scale)
