"""Conditions on rows that PyIceberg reads or deletes. Values stay values: no text of a filter is made of them."""

from __future__ import annotations

from pyiceberg.expressions import BooleanExpression, EqualTo, Reference
from pyiceberg.expressions.literals import literal


def column_is(name: str, value: str) -> BooleanExpression:
    """Gives back the condition that a column has a value."""
    return EqualTo(term=Reference(name), value=literal(value))
