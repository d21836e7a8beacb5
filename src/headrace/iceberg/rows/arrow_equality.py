"""Equality of Arrow values as Spark's `<=>` has it: null equals null."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def equal_values(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return of each pair of values whether they are equal or both null. Not for nested types and floating-point numbers."""
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(pc.equal(left, right), False))


def all_true(conditions: Iterable[pa.Array], *, rows: int) -> pa.Array:
    """Return of each row whether all conditions are true."""
    found = pa.repeat(pa.scalar(True), rows)
    for condition in conditions:
        found = pc.and_(found, condition)
    return found
