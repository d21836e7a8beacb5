"""The partial states of an aggregate call: the stored values per key, how they are merged, and how they give the result.

Results equal those of Spark over all rows, to the last digit. Functions that depend on the order of rows have no states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headrace.spec.model.types import Array, ColumnType, Decimal, Map, Primitive, Struct
from headrace.spec.sql.aggregates.calls import Call, UnsupportedCall

Merge = Literal["add", "least", "greatest", "follow", "unite"]
_EXACT = 2**53
"""The largest integer up to which doubles are exact, so that Spark's average of integers does not depend on row order."""

_AVG_COUNT = 12
"""The number of digits of an average's count. The average is split into an integer and a remainder below one: for counts up to
this many digits, Spark's division keeps enough digits of the remainder to round it as `avg` does."""

_MOST_VALUES = 100
"""The maximum number of stored values of a set. A key with more is recomputed from its rows, so that states stay small."""

_SET_TYPES = (
    Primitive("boolean"),
    Primitive("int"),
    Primitive("long"),
    Primitive("date"),
    Primitive("timestamp"),
    Primitive("string"),
)
"""Types, besides decimals, whose equal values are identical. Floats are not: 0.0 equals -0.0, and Spark keeps either."""

_AVG_PRECISION = 27
_AVG_SCALE = 13


@dataclass(frozen=True)
class StateField:
    """A stored value per key: `sql` is the aggregate that computes it, `name` is its column.

    `add` adds the values of added rows and subtracts those of removed ones. `least` and `greatest` keep an extreme, `follow`
    the value of the row with the extreme `extreme`. `unite` keeps a sorted set of at most `most` values. `counted_by` is the
    field that counts the rows of the value, which is null if the count is 0. Above `most`, a sum depends on the order of rows.
    """

    name: str
    sql: str
    merge: Merge
    counted_by: str | None = None
    extreme: str | None = None
    most: int | None = None


@dataclass(frozen=True)
class CallStates:
    """The fields of a call, and SQL that computes its value from their columns."""

    fields: tuple[StateField, ...]
    value: str


def choose_states(call: Call, types: Sequence[ColumnType], *, names: Sequence[str]) -> CallStates:
    """Return the states of a call whose arguments have these types. Its fields, at most three, get these names.

    Raise an UnsupportedCall if it has none.
    """
    first = names[0]
    if call.function in ("count", "count_if"):
        return CallStates((StateField(first, call.over(call.function), "add"),), f"`{first}`")
    wanted = 2 if call.function in ("min_by", "max_by") else 1
    if len(call.arguments) != wanted:
        raise UnsupportedCall(f"{call.function}(…) of {len(call.arguments)} arguments")
    if call.function in ("bool_and", "bool_or"):
        return _flags(call, names)
    if call.function in ("sum", "avg"):
        return _sum(call, types[0], names) if call.function == "sum" else _average(call, types[0], names)
    if call.function == "collect_set":
        return _set(call, types[0], names)
    for kind in types:
        if not _is_kept(kind):
            raise UnsupportedCall(f"{call.function}(…) of a {kind}")
    return _extreme(call, names)


def _sum(call: Call, kind: ColumnType, names: Sequence[str]) -> CallStates:
    if not isinstance(kind, Decimal) and kind not in (Primitive("int"), Primitive("long")):
        raise UnsupportedCall(f"{call.function}(…) of a {kind}, whose digits depend on the order of rows")
    total, count = names[:2]
    fields = (
        StateField(total, call.over("sum"), "add", counted_by=count),
        StateField(count, call.over("count"), "add"),
    )
    return CallStates(fields, f"IF(`{count}` = 0, NULL, `{total}`)")


def _average(call: Call, kind: ColumnType, names: Sequence[str]) -> CallStates:
    summed = _sum(call, kind, names)
    total, count, sizes = names[:3]
    if not isinstance(kind, Decimal):
        size = StateField(
            sizes, call.over("sum", f"abs(CAST({call.arguments[0]}\n AS DECIMAL(20, 0)))"), "add", counted_by=count, most=_EXACT
        )
        value = f"IF(`{count}` = 0, NULL, CAST(`{total}` AS DOUBLE) / CAST(`{count}` AS DOUBLE))"
        return CallStates((*summed.fields, size), value)
    if kind.precision > _AVG_PRECISION or kind.scale > _AVG_SCALE:
        raise UnsupportedCall(f"avg(…) of a {kind}, which has too many digits")
    divisor = f"CAST(`{count}` AS DECIMAL({_AVG_COUNT}, 0))"
    rest = f"`{total}` % {divisor}"
    whole = f"CAST((`{total}` - {rest}) / {divisor} AS DECIMAL({kind.precision - kind.scale + 1}, 0))"
    part = f"CAST(({rest}) / {divisor} AS DECIMAL({kind.scale + 5}, {kind.scale + 4}))"
    value = f"IF(`{count}` = 0, NULL, CAST({whole} + {part} AS DECIMAL({kind.precision + 4}, {kind.scale + 4})))"
    return replace(summed, value=value)


def _flags(call: Call, names: Sequence[str]) -> CallStates:
    holds, fails = names[:2]
    fields = (
        StateField(holds, call.over("count_if"), "add"),
        StateField(fails, call.over("count_if", f"NOT ({call.arguments[0]}\n)"), "add"),
    )
    decided = f"`{fails}` = 0" if call.function == "bool_and" else f"`{holds}` > 0"
    return CallStates(fields, f"IF(`{holds}` + `{fails}` = 0, NULL, {decided})")


def _extreme(call: Call, names: Sequence[str]) -> CallStates:
    end: Merge = "least" if call.function.startswith("min") else "greatest"
    ordered, count = names[:2]
    by = call.arguments[-1]
    fields = (
        StateField(ordered, call.over(call.function[:3], by), end, counted_by=count),
        StateField(count, call.over("count", by), "add"),
    )
    if len(call.arguments) == 1:
        return CallStates(fields, f"`{ordered}`")
    value = names[2]
    return CallStates((*fields, StateField(value, call.over(call.function), "follow", extreme=ordered)), f"`{value}`")


def _set(call: Call, kind: ColumnType, names: Sequence[str]) -> CallStates:
    if not isinstance(kind, Decimal) and kind not in _SET_TYPES:
        raise UnsupportedCall(f"{call.function}(…) of a {kind}")
    field = StateField(names[0], f"array_sort({call.over('collect_set')})", "unite", most=_MOST_VALUES)
    return CallStates((field,), f"`{names[0]}`")


def _is_kept(kind: ColumnType) -> bool:
    """Return whether values of a type survive a round trip through JSON."""
    if isinstance(kind, Struct):
        # struct(a.n, b.n) has two fields n, of which JSON keeps one and Arrow none.
        names = {column.name.lower() for column in kind.columns}
        return len(names) == len(kind.columns) and all(_is_kept(column.type) for column in kind.columns)
    if isinstance(kind, Array):
        return _is_kept(kind.element)
    return not isinstance(kind, Map) and kind != Primitive("binary")
