"""Conditions on rows that PyIceberg reads or deletes. Values stay values: no text of a filter is made of them."""

from __future__ import annotations

from datetime import datetime

from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, LessThanOrEqual, Reference
from pyiceberg.expressions.literals import literal


def column_is(name: str, value: str) -> BooleanExpression:
    """Return the condition that a column has a value."""
    return EqualTo(term=Reference(name), value=literal(value))


def column_is_at_most(name: str, value: int) -> BooleanExpression:
    """Return the condition that a number is no greater than another."""
    return LessThanOrEqual(term=Reference(name), value=literal(value))


def column_is_from(name: str, moment: datetime) -> BooleanExpression:
    """Return the condition that a time is this one or later."""
    return GreaterThanOrEqual(term=Reference(name), value=literal(moment))


def column_is_before(name: str, moment: datetime) -> BooleanExpression:
    """Return the condition that a time is earlier than this one."""
    return LessThan(term=Reference(name), value=literal(moment))


def column_between(name: str, least: int, most: int) -> BooleanExpression:
    """Return the condition that a column has a number of a range, both ends included."""
    from_least = GreaterThanOrEqual(term=Reference(name), value=literal(least))
    return And(from_least, column_is_at_most(name, most))
