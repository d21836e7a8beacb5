"""Null-safe equality of Arrow values, as Spark's `<=>`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc


def equal_values(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return for each pair of values whether they are equal or both null. Not for nested or floating-point types."""
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(pc.equal(left, right), False))


def all_true(conditions: Iterable[pa.Array], *, rows: int) -> pa.Array:
    """Return for each row whether all conditions are true."""
    result = pa.repeat(pa.scalar(True), rows)
    for condition in conditions:
        result = pc.and_(result, condition)
    return result
