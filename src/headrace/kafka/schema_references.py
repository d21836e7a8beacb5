"""Inline the schemas that an Avro schema references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PARTS = ("type", "items", "values")
_NAMED = ("record", "enum", "fixed", "error")


def write_out(text: str, definitions: Mapping[str, str]) -> str:
    """Return the schema with each referenced type defined at its first use. `definitions` are by full name."""
    parsed = {name: json.loads(definition) for name, definition in definitions.items()}
    return json.dumps(_define(json.loads(text), "", parsed, set()))


def _define(kind: Any, namespace: str, definitions: Mapping[str, Any], done: set[str]) -> Any:
    if isinstance(kind, str):
        name = kind if "." in kind or not namespace else f"{namespace}.{kind}"
        name = name if name in definitions else kind
        if name not in definitions or name in done:
            return kind
        done.add(name)
        # An empty namespace, or it would inherit the enclosing one.
        return _define({"namespace": "", **definitions[name]}, "", definitions, done)
    if isinstance(kind, list):
        return [_define(branch, namespace, definitions, done) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    if kind.get("type") in _NAMED:
        name = str(kind.get("name", ""))
        namespace = name.rpartition(".")[0] if "." in name else str(kind.get("namespace", namespace))
        done.add(name if "." in name or not namespace else f"{namespace}.{name}")
    written = {key: _define(value, namespace, definitions, done) if key in _PARTS else value for key, value in kind.items()}
    if isinstance(kind.get("fields"), list):
        written["fields"] = [
            {**field, "type": _define(field.get("type"), namespace, definitions, done)} if isinstance(field, dict) else field
            for field in kind["fields"]
        ]
    return written
