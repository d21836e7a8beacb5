"""Find arrays whose items take no bytes: a message of a few bytes can claim billions of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def find_endless(kind: Any, names: Mapping[str, Any]) -> str | None:
    """Return the name of a field with such an array at any depth, or None. `names` are the schema's named types."""
    return _find(kind, names, "", set())


def _find(kind: Any, names: Mapping[str, Any], field: str, visited: set[str]) -> str | None:
    if isinstance(kind, str):
        if kind in visited or kind not in names:
            return None
        visited.add(kind)
        return _find(names[kind], names, field, visited)
    if isinstance(kind, list):
        return next((name for branch in kind if (name := _find(branch, names, field, visited))), None)
    if kind["type"] == "array" and _takes_no_bytes(kind["items"], names, ()):
        return field
    inner = [(member["type"], member["name"]) for member in kind.get("fields", ())]
    inner += [(kind[part], field) for part in ("items", "values") if part in kind]
    if not isinstance(kind["type"], str) or kind["type"] in names:
        inner.append((kind["type"], field))
    return next((name for of, at in inner if (name := _find(of, names, at, visited))), None)


def _takes_no_bytes(kind: Any, names: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    if isinstance(kind, str):
        if kind in inside:
            return False  # a record that always contains itself never ends
        return kind == "null" or (kind in names and _takes_no_bytes(names[kind], names, (*inside, kind)))
    if isinstance(kind, list):
        return False  # the branch's index takes a byte
    if kind["type"] == "fixed":
        return bool(kind["size"] == 0)
    if kind["type"] in ("record", "error"):
        return all(_takes_no_bytes(member["type"], names, inside) for member in kind["fields"])
    return kind["type"] not in ("array", "map", "enum") and _takes_no_bytes(kind["type"], names, inside)
