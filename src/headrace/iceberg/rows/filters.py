"""Row filters for PyIceberg. Values are passed as literals, never as filter text."""

from __future__ import annotations

from datetime import datetime

from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, LessThanOrEqual, Reference
from pyiceberg.expressions.literals import literal


def column_is(name: str, value: str) -> BooleanExpression:
    """Return the condition that a column equals a value."""
    return EqualTo(term=Reference(name), value=literal(value))


def column_is_at_most(name: str, value: int) -> BooleanExpression:
    """Return the condition that a number is at most `value`."""
    return LessThanOrEqual(term=Reference(name), value=literal(value))


def column_is_from(name: str, moment: datetime) -> BooleanExpression:
    """Return the condition that a time is at or after `moment`."""
    return GreaterThanOrEqual(term=Reference(name), value=literal(moment))


def column_is_before(name: str, moment: datetime) -> BooleanExpression:
    """Return the condition that a time is before `moment`."""
    return LessThan(term=Reference(name), value=literal(moment))


def column_between(name: str, least: int, most: int) -> BooleanExpression:
    """Return the condition that a number is in a range, both ends included."""
    from_least = GreaterThanOrEqual(term=Reference(name), value=literal(least))
    return And(from_least, column_is_at_most(name, most))
