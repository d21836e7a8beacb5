"""Names of pipelines, streams, tables, namespaces and topics."""

from __future__ import annotations

import re

from headrace.spec.loading.document import Value
from headrace.spec.model.pipeline import TableName

IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
IDENTIFIER_RULE = "lower-case letters, digits and _, with a letter first"
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
LAYER = "{layer}"
"""The placeholder for a layer's name in the namespace of a pipeline's tables."""
METADATA = "metadata"
"""The namespace of Headrace's own tables, such as metadata.quarantine."""


def is_identifier(name: str) -> bool:
    """Return whether this is a valid name of a pipeline, stream or table."""
    return IDENTIFIER.fullmatch(name) is not None


def read_identifier(value: Value) -> str:
    """Return a name that is valid in SQL, in a path and on a command line."""
    name = value.text()
    if not is_identifier(name):
        raise value.error(f'"{name}" is not a valid name', fix=f"Use {IDENTIFIER_RULE}")
    return name


def read_table_name(value: Value) -> TableName:
    """Return the table that a text such as `lineage.events` names. The namespace `metadata` is reserved."""
    name = parse_table_name(value.text(), value)
    if name.parts[0] == METADATA:
        raise value.error(f'the namespace "{METADATA}" is reserved for Headrace\'s own tables', fix="Choose another namespace")
    return name


def parse_table_name(written: str, value: Value) -> TableName:
    """Return the table that `written` names. Errors point to `value`."""
    parts = written.split(".")
    if len(parts) not in (2, 3) or not all(map(is_identifier, parts)):
        raise value.error(
            f'"{written}" is not a valid table name',
            fix=f"Write namespace.table, or two namespaces and a table, each of {IDENTIFIER_RULE}",
        )
    return TableName.parse(written)


def read_namespace(value: Value) -> str:
    """Return the namespace of a pipeline's layer tables, such as `mine` or `{layer}.mine`. `metadata` is reserved."""
    written = value.text()
    parts = written.replace(LAYER, "layer").split(".")
    if len(parts) > 2 or not all(map(is_identifier, parts)):
        raise value.error(
            f'"{written}" is not a valid namespace',
            fix=f'Write one word, or two with a dot between them, such as "{LAYER}.mine", each of {IDENTIFIER_RULE}',
        )
    if written.split(".")[0] == METADATA:
        raise value.error(f'the namespace "{METADATA}" is reserved for Headrace\'s own tables', fix="Choose another namespace")
    return written


def namespace_of(layer: str, *, written: str | None) -> str:
    """Return the namespace of a layer's tables: `written` with the layer filled in, or the layer's name if it is None."""
    return layer if written is None else written.replace(LAYER, layer)


def read_topic(value: Value) -> str:
    """Return a topic name that Kafka accepts."""
    topic = value.text()
    if not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise value.error(
            f'"{topic}" is not a valid topic name', fix="Use letters, digits, dots, _ and -, at most 249 characters"
        )
    return topic
