"""Plan Avro's schema resolution once for each pair of writer and reader schema.

The plan consists of two schemas. `writer` has the layout of the bytes, with the reader's field names and logical types; Avro
encodes neither, so this changes no byte. `reader` is the schema that fastavro resolves each value to. If the two differ only in
numeric promotions, whole blocks are decoded with `writer` alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro

from headrace.landing.decode.endless import find_endless
from headrace.spec.loading.avro import LOGICAL, PRIMITIVES

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_WHOLE, _FLOATING, _BYTES = ("int", "long"), ("float", "double"), ("string", "bytes")
_NAMED = ("record", "enum", "fixed")
_CONNECT_DEFAULT = "connect.default"


class MismatchError(Exception):
    """Messages of the writer's schema can't be read with the reader's. The message names the field and the reason."""


@dataclass(frozen=True)
class Missing:
    """A field that only the reader has: its type, and its default as fastavro encodes it."""

    kind: Any
    default: object


@dataclass(frozen=True)
class Resolution:
    """The plan for reading messages of one schema with another.

    `missing` are fields that only the reader has, by path; `ignored` are paths of fields that only the writer has. `in_blocks`
    is False if each value must be checked: the schema has a union of several types, or a null that the reader does not allow.
    """

    writer: dict[str, Any]
    reader: dict[str, Any]
    missing: Mapping[str, Missing]
    ignored: tuple[str, ...]
    in_blocks: bool


def resolve(writer: str, reader: str, *, grow: bool = False) -> Resolution:
    """Return the plan for reading messages of schema `writer` with schema `reader`, both as JSON text.

    With `grow`, the reader is a minimum: fields that only the writer has are kept, a type that can't be resolved stays the
    writer's, and every field may be null. Raise a MismatchError if no message could be read.
    """
    written, writer_names = _parse(writer, without_defaults=True)
    wanted, reader_names = _parse(reader)
    if not isinstance(written, dict) or written.get("type") != "record":
        raise MismatchError(f"it is {_show(written)}, not a record")
    walk = _Walk(writer_names, reader_names, grow=grow)
    try:
        endless = find_endless(written, writer_names)
        if endless is not None:
            raise MismatchError(f"`{endless}` is an array whose items take no bytes, and can claim any number of them")
        layout, target = walk.record(written, wanted, "")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
        # fastavro does not check all of a schema, such as names that are not text and unions without a type
        raise MismatchError(f"it is not valid Avro: {type(error).__name__}: {error}"[:300]) from error
    return Resolution(layout, target, walk.missing, tuple(walk.ignored), walk.in_blocks)


@dataclass
class _Walk:
    """Walk both schemas side by side. Named types are inlined under new names, so that pairs of them match."""

    writer_names: Mapping[str, Any]
    reader_names: Mapping[str, Any]
    grow: bool
    missing: dict[str, Missing] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    in_blocks: bool = True
    count: int = 0

    def record(self, writer: Any, reader: Any, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
        name = self.new_name(writer)
        matches = _match_fields(writer, reader)
        written: list[dict[str, Any]] = []
        read: list[dict[str, Any]] = []
        for member in writer["fields"]:
            wanted = matches.get(member["name"])
            at = _join(path, member["name"] if wanted is None else wanted["name"])
            if _is_null(member["type"]) or (wanted is None and not self.grow) or (wanted and _is_null(wanted["type"])):
                if wanted is None:
                    self.ignored.append(at)
                written.append(
                    {"name": self.new_name({"name": "ignored"}), "type": self.copy(member["type"], self.writer_names)}
                )
                continue
            left, right = self.field(member["type"], wanted, at)
            written.append({"name": at.rpartition(".")[2], "type": left})
            read.append({"name": at.rpartition(".")[2], "type": right})
        there = {member["name"] for member in read}
        for member in reader["fields"]:
            if member["name"] not in there and not _is_null(member["type"]):
                self.miss(member, _join(path, member["name"]))
        return ({"type": "record", "name": name, "fields": written}, {"type": "record", "name": name, "fields": read})

    def field(self, writer: Any, wanted: Mapping[str, Any] | None, path: str) -> tuple[Any, Any]:
        if wanted is not None:
            try:
                return self.kind(writer, wanted["type"], path)
            except MismatchError:
                if not self.grow:
                    raise
        copied = self.copy(writer, self.writer_names)
        return copied, copied

    def miss(self, wanted: Mapping[str, Any], path: str) -> None:
        """Plan the value of a field that the writer lacks. With `grow`, ignore Kafka Connect's defaults, as placeholders."""
        kind = self.copy(wanted["type"], self.reader_names)
        if "default" in wanted and not (self.grow and _has_connect_default(wanted["type"])):
            self.missing[path] = Missing(kind, _default_value(kind, wanted["default"], path))
        elif self.grow:
            self.missing[path] = Missing(kind, None)
        else:
            raise MismatchError(f"`{path}` is not in it, and the stream's schema has no default for it")

    def kind(self, writer: Any, reader: Any, path: str) -> tuple[Any, Any]:
        writer, reader = _definition(writer, self.writer_names), _definition(reader, self.reader_names)
        if isinstance(writer, list) or isinstance(reader, list):
            return self.union(writer, reader, path)
        here, there = _type(writer), _type(reader)
        if here == there == "record":
            return self.record(writer, reader, path)
        if here == there and here in ("array", "map"):
            part = "items" if here == "array" else "values"
            left, right = self.kind(writer[part], reader[part], path)
            return {"type": here, part: left}, {"type": here, part: right}
        if here == there == "enum":
            return self.enum(writer, reader)
        if here == there == "fixed" and writer["size"] == reader["size"] and _same_scale(writer, reader):
            fixed = {
                **_notes(writer),
                **_logical(reader),
                "type": "fixed",
                "name": self.new_name(writer),
                "size": writer["size"],
            }
            return fixed, fixed
        resolved = _resolve_scalar(writer, reader) if here in PRIMITIVES else None
        if resolved is None:
            raise MismatchError(f"`{path}` is {_show(writer)}, and the stream's schema has {_show(reader)}")
        return resolved

    def union(self, writer: Any, reader: Any, path: str) -> tuple[Any, Any]:
        branches, wanted = _branches(writer), _branches(reader)
        (target,) = [branch for branch in wanted if branch != "null"]
        pairs: list[tuple[Any, Any | None]] = []
        reason: MismatchError | None = None
        for branch in branches:
            if branch == "null":
                pairs.append(("null", "null"))
                continue
            try:
                pairs.append(self.kind(branch, target, path))
            except MismatchError as error:
                pairs.append((self.copy(branch, self.writer_names), None))
                reason = error
        several = sum(branch != "null" for branch in branches) > 1
        if reason and (not several or all(right in (None, "null") for _, right in pairs)):
            raise reason
        nullable = "null" in wanted or self.grow
        if several:
            # Keep each branch's own type: a union can't have the same type twice.
            pairs = [(self.unpromoted(branch, pair[0]), pair[1]) for branch, pair in zip(branches, pairs, strict=True)]
        self.in_blocks &= not several and ("null" not in branches or nullable)
        written = [left for left, _ in pairs] if isinstance(writer, list) else pairs[0][0]
        read: list[Any] = ["null"] if nullable else []
        for _, right in pairs:
            if right is not None and right not in read and right != "null":
                read.append(right)
        return written, read if nullable or len(read) > 1 else read[0]

    def unpromoted(self, branch: Any, resolved: Any) -> Any:
        branch = _definition(branch, self.writer_names)
        if _type(branch) not in (*_WHOLE, *_BYTES):
            return resolved
        return {**(resolved if isinstance(resolved, dict) else {}), "type": _type(branch)}

    def enum(self, writer: Any, reader: Any) -> tuple[Any, Any]:
        name = self.new_name(writer)
        written = {**_notes(writer), "type": "enum", "name": name, "symbols": writer["symbols"]}
        if self.grow and "default" not in reader:
            return written, written
        default = {"default": reader["default"]} if "default" in reader else {}
        return written, {"type": "enum", "name": name, "symbols": reader["symbols"], **default}

    def copy(self, kind: Any, names: Mapping[str, Any], inside: tuple[tuple[str, str], ...] = ()) -> Any:
        """Return a type with its named types inlined; a recursive type is referenced by its new name."""
        if isinstance(kind, str) and kind in dict(inside):
            return dict(inside)[kind]
        kind = _definition(kind, names)
        if isinstance(kind, list):
            return [self.copy(branch, names, inside) for branch in kind]
        if not isinstance(kind, dict):
            return kind
        copied = {key: value for key, value in kind.items() if not key.startswith("__") and key not in ("namespace", "aliases")}
        if kind["type"] in _NAMED:
            copied["name"] = self.new_name(kind)
            inside = (*inside, (kind["name"], copied["name"]))
        if kind["type"] == "record":
            fields = [(member["name"], self.copy(member["type"], names, inside), member) for member in kind["fields"]]
            # Defaults of a writer's fields are dropped already; a reader's complete a default of the whole record.
            copied["fields"] = [
                {"name": name, "type": inner, **({"default": member["default"]} if "default" in member else {})}
                for name, inner, member in fields
            ]
        for part in ("items", "values"):
            if part in kind:
                copied[part] = self.copy(kind[part], names, inside)
        return copied

    def new_name(self, named: Mapping[str, Any]) -> str:
        self.count += 1
        return f"{named['name'].rpartition('.')[2]}__{self.count}"


def _parse(text: str, *, without_defaults: bool = False) -> tuple[Any, Mapping[str, Any]]:
    names: dict[str, Any] = {}
    try:
        schema = json.loads(text)
        return fastavro.parse_schema(drop_defaults(schema) if without_defaults else schema, named_schemas=names), names
    except Exception as error:  # the parser raises anything for an invalid schema
        raise MismatchError(f"it is not valid Avro: {error}"[:300]) from error


def drop_defaults(kind: Any) -> Any:
    """Return a schema without its fields' defaults: a reader of written messages ignores invalid ones."""
    if isinstance(kind, list):
        return [drop_defaults(branch) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    stripped = {key: drop_defaults(value) if key in ("type", "items", "values") else value for key, value in kind.items()}
    if isinstance(kind.get("fields"), list):
        fields = [
            {**{key: value for key, value in member.items() if key != "default"}, "type": drop_defaults(member.get("type"))}
            if isinstance(member, dict) and "type" in member
            else member
            for member in kind["fields"]
        ]
        stripped["fields"] = fields
    return stripped


def _match_fields(writer: Any, reader: Any) -> dict[str, Any]:
    """Return the reader's field for each of the writer's fields, matched by name, else by alias."""
    written = {candidate["name"] for candidate in writer["fields"]}
    wanted = {candidate["name"]: candidate for candidate in reader["fields"]}
    matches = {name: wanted[name] for name in written & wanted.keys()}
    for candidate in reader["fields"]:
        alias = next((name for name in candidate.get("aliases", ()) if name in written and name not in matches), None)
        if candidate["name"] not in written and alias is not None:
            matches[alias] = candidate
    return matches


def _resolve_scalar(writer: Any, reader: Any) -> tuple[Any, Any] | None:
    here, there = _type(writer), _type(reader)
    if here != there and there not in _WIDER.get(here, ()) and not (here in _BYTES and there in _BYTES):
        return None
    if here in _WHOLE and there in _FLOATING:
        return here, there
    if here in (*_WHOLE, *_BYTES) and there in (*_WHOLE, *_BYTES):
        logical = _resolve_logical(writer, reader)
        if logical is None:
            return None
        resolved = {**_notes(writer), **logical, "type": there}  # both are encoded alike
        return resolved, resolved
    return writer, writer if here == there else reader


def _resolve_logical(writer: Any, reader: Any) -> dict[str, Any] | None:
    """Return the logical type to read values with, or None if the two contradict each other.

    It is the reader's, except for two timestamps of different units: the writer's unit gives the right time.
    """
    written, wanted = _logical(writer), _logical(reader)
    left, right = written.get("logicalType"), wanted.get("logicalType")
    if right == "decimal":
        return written or wanted if _type(writer) == "bytes" and _same_scale(writer, reader) else None
    if not left or not right or left == right:
        return wanted
    moments = left.rpartition("-")[0] == right.rpartition("-")[0] in ("timestamp", "local-timestamp")
    return written if moments else None


def _notes(kind: Any) -> dict[str, Any]:
    """Return the annotations of a schema beside Avro's own keys, such as Kafka Connect's type."""
    return {key: value for key, value in kind.items() if "." in key} if isinstance(kind, dict) else {}


def _same_scale(writer: Any, reader: Any) -> bool:
    written, wanted = _logical(writer), _logical(reader)
    return not written or not wanted or written.get("scale", 0) == wanted.get("scale", 0)


def _logical(kind: Any) -> dict[str, Any]:
    """Return the keys of a logical type that a column can have; other logical types are ignored."""
    if not isinstance(kind, dict) or (kind.get("logicalType") != "decimal" and not is_logical(kind)):
        return {}
    return {key: kind[key] for key in ("logicalType", "precision", "scale") if key in kind}


def is_logical(kind: Mapping[str, Any]) -> bool:
    """Return whether a type's logical type, decimals aside, is one that a column has."""
    return (str(kind.get("type")), str(kind.get("logicalType"))) in LOGICAL


def _default_value(kind: Any, default: Any, path: str) -> Any:
    """Return a schema's default, which is JSON, as the value that fastavro encodes."""
    if isinstance(kind, list):
        if default is None and "null" in kind:
            return None
        (kind,) = [branch for branch in kind if branch != "null"]
    name = _type(kind)
    try:
        if name in ("bytes", "fixed"):
            return default.encode("latin-1")
        if name == "record":
            inner = {member["name"]: member for member in kind["fields"]}
            return {
                key: _default_value(member["type"], default[key] if key in default else member["default"], f"{path}.{key}")
                for key, member in inner.items()
            }
        if name == "array":
            return [_default_value(kind["items"], member, path) for member in default]
        if name == "map":
            return {key: _default_value(kind["values"], member, path) for key, member in default.items()}
    except (AttributeError, KeyError, TypeError, UnicodeError) as error:
        raise MismatchError(f"the default of `{path}` in the stream's schema is not a value of its type") from error
    return default


def _has_connect_default(kind: Any) -> bool:
    return any(isinstance(branch, dict) and _CONNECT_DEFAULT in branch for branch in _branches(kind))


def _definition(kind: Any, names: Mapping[str, Any]) -> Any:
    """Return the definition of a name, without objects that only wrap a type."""
    if isinstance(kind, str):
        return names.get(kind, kind)
    if isinstance(kind, dict) and not isinstance(kind["type"], str):
        return _definition(kind["type"], names)
    if isinstance(kind, dict) and kind["type"] in names:
        return names[kind["type"]]
    return kind


def _branches(kind: Any) -> list[Any]:
    branches = kind if isinstance(kind, list) else [kind]
    return ["null" if _is_null(branch) else branch for branch in branches]


def _is_null(kind: Any) -> bool:
    return kind in ("null", ["null"], {"type": "null"})


def _type(kind: Any) -> str:
    return str(kind["type"] if isinstance(kind, dict) else kind)


def _show(kind: Any) -> str:
    """Return a type as text for an error message."""
    if isinstance(kind, list):
        return f"a union of {', '.join(map(_show, kind))}"
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] in _NAMED:
        return f"{kind['type']} {kind['name']}" + (f" of {kind['size']} bytes" if kind["type"] == "fixed" else "")
    logical = kind.get("logicalType")
    digits = f"({kind.get('precision')},{kind.get('scale', 0)})" if logical == "decimal" else ""
    return f"{logical}{digits} on {kind['type']}" if logical else _type(kind)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
