"""Preview the schema of an update before it is committed."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema


def planned_schema(update: UpdateSchema) -> Schema:
    """Return the schema that an update would commit; nothing is committed."""
    return update._apply()
