"""The columns that Headrace added to a stored table beside the columns of its query, for every reader of the table.

Names are not sufficient: a raw table, or a query of another kind, may have its own column `_state` or `_carried`.
"""

from __future__ import annotations

import hashlib

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, StringType

from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.spec.model.layers import BUILD_ID, HIDDEN, STATE

_AGGREGATE = hashlib.sha256(b'"aggregate"').hexdigest()[:12]
"""The digest of the kind `aggregate` in the entries of builds that did not record added columns."""


def added_columns(table: Table) -> frozenset[str]:
    """Return the columns that Headrace added: build ids, the sources of carried values, and partial states.

    A build records which of these columns its query did not return. For tables whose last build did not record them, the
    definition decides, or else the types of the columns.
    """
    schema = table.schema()
    present = frozenset(field.name for field in schema.fields).intersection(HIDDEN)
    if KEY not in table.properties:
        return present if _awaits_first_build(table) else frozenset()
    if present <= {BUILD_ID}:
        return present
    entry = BuildLedger.from_json(table.properties[KEY])
    if entry.added_columns is not None:
        return present.intersection(entry.added_columns)
    return frozenset(name for name in present if _is_added(name, entry, schema))


def hidden_columns(table: Table) -> frozenset[str]:
    """Return the columns that readers don't see: the partial states of an aggregate."""
    return added_columns(table) & {STATE}


def shown_columns(table: Table) -> tuple[str, ...]:
    """Return the columns that readers see, in table order."""
    hidden = hidden_columns(table)
    return tuple(field.name for field in table.schema().fields if field.name not in hidden)


def _awaits_first_build(table: Table) -> bool:
    """Return whether a build created this table and has not committed to it yet."""
    fields = table.schema().fields
    return bool(fields) and fields[-1].name == BUILD_ID and table.current_snapshot() is None


def _is_added(name: str, entry: BuildLedger, schema: Schema) -> bool:
    if name == BUILD_ID:
        return True
    if entry.definition_fields:
        return entry.definition_fields.get("kind") == _AGGREGATE if name == STATE else "unchanged" in entry.definition_fields
    return isinstance(schema.find_field(name).field_type, StringType if name == STATE else ListType)
