"""Read Avro schemas (.avsc) as columns, by Avro's rules for named types, unions and logical types."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import yaml

from headrace.errors import SpecError
from headrace.spec.model.columns import name_problem
from headrace.spec.model.types import MAX_PRECISION, Array, Column, ColumnType, Decimal, Map, Primitive, PrimitiveName, Struct
from headrace.spec.problems import Place, Problems, suggest

PRIMITIVES: dict[str, PrimitiveName] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
LOGICAL: dict[tuple[str, str], PrimitiveName] = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("string", "uuid"): "string",
}
"""Logical types other than decimals that have a column type. Any other one lands as the type that it is stored as."""

_BY_POSITION = "plain Avro reads fields by position, so it can't land with this field"
_OTHER_FORM = (
    "Change the type in the producers; or remove the field here, if messages carry a registry's schema id"
    " (framing: confluent) or are JSON"
)
_DEFAULTS: dict[PrimitiveName, type | tuple[type, ...]] = {
    "boolean": bool,
    "float": (int, float),
    "double": (int, float),
    "string": str,
    "binary": str,
}

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Path = tuple[str | int, ...]
"""The path to a part of the schema, as keys and positions."""


def parse_avro(text: str, *, place: Place, problems: Problems) -> tuple[Column, ...]:
    """Return the columns of a record schema.

    A text that is not a record schema raises a SpecError. A field without a column type is collected in `problems`.
    """
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise place.error(f"not valid JSON: {error.msg}", line=error.lineno, fix="Fix the line") from None
    except RecursionError:
        raise _too_deep(place) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise place.error("the schema is not a record", line=1, fix='Write {"type": "record", "name": …, "fields": […]}')
    try:
        return _Reader(text, place=place, problems=problems).record(schema, namespace="", path=()).columns
    except RecursionError:
        raise _too_deep(place) from None


def _too_deep(place: Place) -> SpecError:
    return place.error("the schema is nested too deeply", line=1, fix="Write it with fewer levels")


@dataclass
class _Reader:
    """Read one schema. `named` are the complete named types so far, `unfinished` the enclosing ones."""

    text: str
    place: Place
    problems: Problems
    named: dict[str, ColumnType] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def record(self, schema: dict[str, object], *, namespace: str, path: Path) -> Struct:
        name = self.full_name(schema, namespace=namespace, path=path)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields:
            raise self.error(f'record "{name}" has no fields', path, fix='Add "fields": [{"name": …, "type": …}]')
        self.unfinished.append(name)
        columns: list[Column] = []
        for position, entry in enumerate(fields):
            column = self.problems.attempt(
                self.column,
                entry,
                taken=[column.name for column in columns],
                namespace=name.rpartition(".")[0],
                path=(*path, "fields", position),
            )
            if column is not None:
                columns.append(column)
        if not columns and not self.problems.errors:
            raise self.error(f'all fields of record "{name}" are null', path, fix="Add a field that has values")
        self.unfinished.pop()
        self.named[name] = Struct(tuple(columns))
        return Struct(tuple(columns))

    def column(self, entry: object, *, taken: list[str], namespace: str, path: Path) -> Column | None:
        """Return a field's column, or None for a field of type null, which takes no bytes and has no values."""
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or "type" not in entry:
            raise self.error("a field needs a name and a type", path, fix='Write {"name": …, "type": …}')
        name = entry["name"]
        if not NAME.fullmatch(name):
            raise self.error(
                f'"{name}" is not a valid Avro name', path, fix="Use letters, digits and _, and no digit at the start"
            )
        problem = name_problem(name, taken=taken, nested=len(path) > 2)
        if problem:
            fix = f'Rename it here, with "aliases": ["{name}"] for messages with a registry\'s schema id; for JSON, remove it'
            raise self.error(problem[0], path, fix=problem[1] if name in taken else fix)
        if entry["type"] in ("null", ["null"], {"type": "null"}):
            return None
        kind, optional = self.optional(entry["type"], name=name, namespace=namespace, path=(*path, "type"))
        if "default" in entry and not _fits(kind, entry["default"], optional=optional):
            raise self.error(
                f'the default of "{name}" is {json.dumps(entry["default"])}, not a value of its type',
                path,
                fix="Write a default of the field's type, or remove it",
            )
        return Column(name, kind, required=not optional, doc=meaning_of(entry["type"]))

    def optional(self, schema: object, *, name: str, namespace: str, path: Path) -> tuple[ColumnType, bool]:
        """Return a type and whether it is nullable."""
        if not isinstance(schema, list):
            return self.type(schema, name=name, namespace=namespace, path=path), False
        branches = [(position, branch) for position, branch in enumerate(schema) if branch not in ("null", {"type": "null"})]
        if len(branches) != 1:
            raise self.error(
                f'"{name}" is a union of {len(branches)} types, and a column has one type; {_BY_POSITION}',
                path,
                fix=_OTHER_FORM,
            )
        position, branch = branches[0]
        return self.type(branch, name=name, namespace=namespace, path=(*path, position)), len(schema) > 1

    def type(self, schema: object, *, name: str, namespace: str, path: Path) -> ColumnType:
        if isinstance(schema, str):
            return self.reference(schema, name=name, namespace=namespace, path=path)
        if not isinstance(schema, dict) or "type" not in schema:
            raise self.error(f'"{name}" has no Avro type', path, fix='Write "type": "string" or another type')
        kind = schema["type"]
        if kind == "record":
            return self.record(schema, namespace=namespace, path=path)
        if kind == "array" or kind == "map":
            part = "items" if kind == "array" else "values"
            if part not in schema:
                raise self.error(f'{kind} "{name}" has no "{part}"', path, fix=f'Add "{part}": type')
            inner, _ = self.optional(schema[part], name=name, namespace=namespace, path=(*path, part))
            return Array(inner) if kind == "array" else Map(inner)
        if kind == "enum" or kind == "fixed":
            full_name = self.full_name(schema, namespace=namespace, path=path)
            part, wanted = ("symbols", list) if kind == "enum" else ("size", int)
            if not isinstance(schema.get(part), wanted):
                raise self.error(f'{kind} "{full_name}" has no "{part}"', path, fix=f'Add "{part}": …')
            if schema[part] == 0:
                raise self.error(f'fixed "{full_name}" has no bytes', path, fix='Write a "size" of 1 or more')
            plain: ColumnType = Primitive("string" if kind == "enum" else "binary")
            self.named[full_name] = self.logical(schema, kind, plain, name=name, path=path)
            return self.named[full_name]
        if isinstance(kind, str):
            plain = self.reference(kind, name=name, namespace=namespace, path=path)
            return self.logical(schema, kind, plain, name=name, path=path)
        return self.type(kind, name=name, namespace=namespace, path=(*path, "type"))

    def reference(self, word: str, *, name: str, namespace: str, path: Path) -> ColumnType:
        if word in PRIMITIVES:
            return Primitive(PRIMITIVES[word])
        full_name = word if "." in word or not namespace else f"{namespace}.{word}"
        if full_name in self.named:
            return self.named[full_name]
        if full_name in self.unfinished:
            raise self.error(
                f'"{name}" is recursive: it contains its own record "{full_name}", which a table can\'t store; {_BY_POSITION}',
                path,
                fix=_OTHER_FORM,
            )
        if word == "null":
            raise self.error(f'"{name}" is always null, and a column needs a type; {_BY_POSITION}', path, fix=_OTHER_FORM)
        known = [*PRIMITIVES, "record", "enum", "array", "map", "fixed", *self.named]
        raise self.error(f'unknown type "{word}"', path, fix=f"{suggest(word, known, plural='Types')} Fix the type")

    def logical(self, schema: dict[str, object], kind: str, plain: ColumnType, *, name: str, path: Path) -> ColumnType:
        """Return the column type for the schema's logical type, or the plain type if it has none."""
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= MAX_PRECISION:
                raise self.error(
                    f'"{name}" is not a decimal type that a table can store',
                    path,
                    fix=f"Write a precision up to {MAX_PRECISION} and a scale up to the precision, or remove"
                    ' "logicalType" to land the bytes',
                )
            return Decimal(precision, scale)
        return Primitive(LOGICAL[kind, logical]) if isinstance(logical, str) and (kind, logical) in LOGICAL else plain

    def full_name(self, schema: dict[str, object], *, namespace: str, path: Path) -> str:
        name, own = schema.get("name"), schema.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(own, str) or not all(map(NAME.fullmatch, name.split("."))):
            raise self.error(f"this {schema['type']} has no valid Avro name", path, fix='Add "name": "…"')
        full_name = name if "." in name or not own else f"{own}.{name}"
        if full_name in self.named or full_name in self.unfinished or full_name in PRIMITIVES:
            raise self.error(f'type "{full_name}" is defined twice', path, fix="Refer to the first by its name")
        return full_name

    def error(self, what: str, path: Path, *, fix: str) -> SpecError:
        return self.place.error(what, line=find_line(self.text, path), fix=fix)


def _fits(kind: ColumnType, default: object, *, optional: bool) -> bool:
    """Return whether a field's default in JSON is a value of its type."""
    if default is None:
        return optional
    if isinstance(kind, (Struct, Map)):
        return isinstance(default, dict)
    if isinstance(kind, Array):
        return isinstance(default, list)
    if isinstance(kind, Decimal):
        return isinstance(default, str)
    wanted = _DEFAULTS.get(kind.name, int)
    return isinstance(default, wanted) and (wanted is bool or not isinstance(default, bool))


def meaning_of(schema: object) -> str | None:
    """Return the Kafka Connect name that gives the meaning of values. For an array, return that of its elements."""
    if isinstance(schema, list):
        return next((meaning for meaning in map(meaning_of, schema) if meaning), None)
    if not isinstance(schema, dict) or schema.get("type") == "record":
        return None
    kind, name = schema.get("type"), schema.get("connect.name")
    if kind == "array":
        inner = meaning_of(schema.get("items"))
        return f"array<{inner}>" if inner else None
    return name if isinstance(name, str) else meaning_of(kind)


def find_line(text: str, path: Path) -> int:
    """Return the line on which a part of a JSON text starts.

    JSON is parsed as YAML, which keeps lines. For JSON that is not valid YAML, the line is 1.
    """
    try:
        node = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return 1
    for step in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == step), node)
    return int(node.start_mark.line) + 1 if node is not None else 1
