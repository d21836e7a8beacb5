"""An Avro schema that refers to others of its registry, written out as one text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PARTS = ("type", "items", "values")
_NAMED = ("record", "enum", "fixed", "error")


def write_out(text: str, definitions: Mapping[str, str]) -> str:
    """Return the schema with each referenced type defined where it is first used; `definitions` are by full name."""
    parsed = {name: json.loads(definition) for name, definition in definitions.items()}
    return json.dumps(_define(json.loads(text), "", parsed, set()))


def _define(kind: Any, namespace: str, definitions: Mapping[str, Any], done: set[str]) -> Any:
    if isinstance(kind, str):
        name = kind if "." in kind or not namespace else f"{namespace}.{kind}"
        name = name if name in definitions else kind
        if name not in definitions or name in done:
            return kind
        done.add(name)
        # Without a namespace of its own it would take over the one around it.
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
            {**each, "type": _define(each.get("type"), namespace, definitions, done)} if isinstance(each, dict) else each
            for each in kind["fields"]
        ]
    return written
