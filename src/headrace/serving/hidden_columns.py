"""Columns that Headrace keeps for itself, left out of what `SELECT *` gives."""

from __future__ import annotations

import pyarrow as pa

from headrace.spec.layers import STATE


def without_states(found: pa.Table, sql: str) -> pa.Table:
    """Return a result without the partial states of aggregates, unless the query names them."""
    hidden = [name for name in found.column_names if name == STATE and STATE not in sql]
    return found.drop_columns(hidden) if hidden else found
