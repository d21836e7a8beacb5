"""The names that people give: of pipelines, streams, tables and topics."""

from __future__ import annotations

import re

from headrace.spec.loading.document import Value
from headrace.spec.model.pipeline import TableName

IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
IDENTIFIER_RULE = "lower-case letters, digits and _, with a letter first"
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
LAYER = "{layer}"
"""What stands for a layer's name in the namespace of a pipeline's tables."""
METADATA = "metadata"
"""The namespace of Headrace's own tables, such as metadata.quarantine."""


def is_identifier(name: str) -> bool:
    """Return whether a pipeline, stream or table can have this name."""
    return IDENTIFIER.fullmatch(name) is not None


def read_identifier(value: Value) -> str:
    """Return a name that works in SQL, in a path and on a command line."""
    name = value.text()
    if not is_identifier(name):
        raise value.error(f'"{name}" can\'t be a name', fix=f"Use {IDENTIFIER_RULE}")
    return name


def read_table_name(value: Value) -> TableName:
    """Return the table that a text such as `lineage.events` names; Headrace's own are refused."""
    name = parse_table_name(value.text(), value)
    if name.parts[0] == METADATA:
        raise value.error(f'the namespace "{METADATA}" holds Headrace\'s own tables', fix="Choose another namespace")
    return name


def parse_table_name(written: str, value: Value) -> TableName:
    """Return the table that `written` names, which stands at `value`."""
    parts = written.split(".")
    if len(parts) not in (2, 3) or not all(map(is_identifier, parts)):
        raise value.error(
            f'"{written}" is not a table',
            fix=f"Write namespace.table, or two namespaces and a table, each of {IDENTIFIER_RULE}",
        )
    return TableName.parse(written)


def read_namespace(value: Value) -> str:
    """Return the namespace of a pipeline's layer tables, such as `mine` or `{layer}.mine`; Headrace's own is refused."""
    written = value.text()
    parts = written.replace(LAYER, "layer").split(".")
    if len(parts) > 2 or not all(map(is_identifier, parts)):
        raise value.error(
            f'"{written}" can\'t be a namespace',
            fix=f'Write one word, or two with a dot between them, such as "{LAYER}.mine", each of {IDENTIFIER_RULE}',
        )
    if written.split(".")[0] == METADATA:
        raise value.error(f'"{METADATA}" is the namespace of Headrace\'s own tables', fix="Choose another namespace")
    return written


def namespace_of(layer: str, *, written: str | None) -> str:
    """Return the namespace of a layer's tables: what the pipeline has `written`, or else the layer's name."""
    return layer if written is None else written.replace(LAYER, layer)


def read_topic(value: Value) -> str:
    """Return a topic that Kafka accepts."""
    topic = value.text()
    if not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise value.error(
            f'Kafka has no topics called "{topic}"', fix="Use letters, digits, dots, _ and -, at most 249 characters"
        )
    return topic
