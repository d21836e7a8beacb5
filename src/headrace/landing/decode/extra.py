"""Collect the fields of a message that its schema does not name, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.spec.model.types import Array, Column, ColumnType, Map, Struct

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def find_extra(value: bytes, columns: tuple[Column, ...]) -> tuple[str, list[str]]:
    """Return the unnamed fields as a JSON object keyed by path, and the paths without list positions.

    Values are copied byte for byte, so numbers keep all digits.
    """
    fields = list(_walk_struct(value, columns, path=""))
    text = b",".join(msgspec.json.encode(path) + b":" + bytes(raw) for path, raw in fields)
    return (b"{" + text + b"}").decode("utf-8"), [_without_positions(path) for path, _ in fields]


def names_in_extra(text: str) -> list[str]:
    """Return the paths in a value of `_extra` without list positions."""
    return [_without_positions(path) for path in _OBJECT.decode(text)]


def _walk_struct(value: bytes | msgspec.Raw, columns: tuple[Column, ...], *, path: str) -> Iterator[tuple[str, msgspec.Raw]]:
    named = {column.name: column.type for column in columns}
    for name, raw in _OBJECT.decode(value).items():
        inner = f"{path}.{name}" if path else name
        if name not in named:
            yield inner, raw
        else:
            yield from _walk(raw, named[name], path=inner)


def _walk(value: msgspec.Raw, column_type: ColumnType, *, path: str) -> Iterator[tuple[str, msgspec.Raw]]:
    if bytes(value).strip() == b"null":
        return
    if isinstance(column_type, Struct):
        yield from _walk_struct(value, column_type.columns, path=path)
    elif isinstance(column_type, Array) and _may_hold_structs(column_type.element):
        for position, element in enumerate(_LIST.decode(value)):
            yield from _walk(element, column_type.element, path=f"{path}[{position}]")
    elif isinstance(column_type, Map) and _may_hold_structs(column_type.value):
        for name, element in _OBJECT.decode(value).items():
            yield from _walk(element, column_type.value, path=f"{path}.{name}")


def _may_hold_structs(column_type: ColumnType) -> bool:
    if isinstance(column_type, Array):
        return _may_hold_structs(column_type.element)
    if isinstance(column_type, Map):
        return _may_hold_structs(column_type.value)
    return isinstance(column_type, Struct)


def _without_positions(path: str) -> str:
    return "".join(part.split("]", 1)[-1] if index else part for index, part in enumerate(path.split("[")))
