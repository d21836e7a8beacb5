"""Which columns of a stored table Headrace added to those of its query. Every reader asks here.

The names alone don't tell: a raw table, or a query of another kind, may have a column `_state` or `_carried` of its own.
"""

from __future__ import annotations

import hashlib

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, StringType

from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.spec.model.layers import BUILD_ID, HIDDEN, STATE

_AGGREGATE = hashlib.sha256(b'"aggregate"').hexdigest()[:12]
"""What builds that recorded no added columns recorded as the digest of the kind `aggregate`."""


def added_columns(table: Table) -> frozenset[str]:
    """Return the columns that Headrace added: build ids, where carried values are from, and partial states.

    A build records which of these names its query did not give. Of tables whose last build recorded nothing, their definition
    tells, or else the types of the columns.
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
    """Return the columns that no reader is shown: the partial states of an aggregate."""
    return added_columns(table) & {STATE}


def shown_columns(table: Table) -> tuple[str, ...]:
    """Return the columns that readers are shown, in their order."""
    hidden = hidden_columns(table)
    return tuple(field.name for field in table.schema().fields if field.name not in hidden)


def _awaits_first_build(table: Table) -> bool:
    """Return whether a build made this table and has not committed to it yet."""
    fields = table.schema().fields
    return bool(fields) and fields[-1].name == BUILD_ID and table.current_snapshot() is None


def _is_added(name: str, entry: BuildLedger, schema: Schema) -> bool:
    if name == BUILD_ID:
        return True
    if entry.definition_fields:
        return entry.definition_fields.get("kind") == _AGGREGATE if name == STATE else "unchanged" in entry.definition_fields
    return isinstance(schema.find_field(name).field_type, StringType if name == STATE else ListType)
