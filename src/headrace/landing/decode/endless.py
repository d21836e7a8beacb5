"""Arrays whose items take no bytes: a message of a few bytes can claim more of them than anything could ever count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def find_endless(kind: Any, names: Mapping[str, Any]) -> str | None:
    """Return the name of a field that holds such an array, at any depth, or None; `names` are the schema's named types."""
    return _find(kind, names, "", set())


def _find(kind: Any, names: Mapping[str, Any], field: str, seen: set[str]) -> str | None:
    if isinstance(kind, str):
        if kind in seen or kind not in names:
            return None
        seen.add(kind)
        return _find(names[kind], names, field, seen)
    if isinstance(kind, list):
        return next((found for branch in kind if (found := _find(branch, names, field, seen))), None)
    if kind["type"] == "array" and _takes_no_bytes(kind["items"], names, ()):
        return field
    inner = [(each["type"], each["name"]) for each in kind.get("fields", ())]
    inner += [(kind[part], field) for part in ("items", "values") if part in kind]
    if not isinstance(kind["type"], str) or kind["type"] in names:
        inner.append((kind["type"], field))
    return next((found for each, name in inner if (found := _find(each, names, name, seen))), None)


def _takes_no_bytes(kind: Any, names: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    if isinstance(kind, str):
        if kind in inside:
            return False  # a record that always holds itself is never read to its end
        return kind == "null" or (kind in names and _takes_no_bytes(names[kind], names, (*inside, kind)))
    if isinstance(kind, list):
        return False  # the number of the branch takes one
    if kind["type"] == "fixed":
        return bool(kind["size"] == 0)
    if kind["type"] in ("record", "error"):
        return all(_takes_no_bytes(each["type"], names, inside) for each in kind["fields"])
    return kind["type"] not in ("array", "map", "enum") and _takes_no_bytes(kind["type"], names, inside)
