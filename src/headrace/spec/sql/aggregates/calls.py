"""Find calls of aggregate functions in a SELECT list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.spec.sql.aggregates.clauses import Span, closing, split_commas

FUNCTIONS = {
    "count": "count",
    "count_if": "count_if",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "bool_and": "bool_and",
    "every": "bool_and",
    "bool_or": "bool_or",
    "some": "bool_or",
    "any": "bool_or",
    "min_by": "min_by",
    "max_by": "max_by",
    "collect_set": "collect_set",
}
"""The functions with mergeable partial states, by all their names."""

_QUANTIFIED = ("like", "ilike", "rlike", "=", "<>", "!=", "<", ">", "<=", ">=", ".")
_ORDERED = ("array_sort", "sort_array", "size", "cardinality", "array_size")
"""Functions of a set whose value does not depend on the order of its elements, which Spark does not define."""

_NOT_PLAIN = ("over", "within group", "within", "ignore nulls", "respect nulls", "ignore", "respect")


@dataclass(frozen=True)
class Call:
    """An aggregate function with its arguments and its FILTER as text."""

    function: str
    arguments: tuple[str, ...]
    condition: str | None = None

    def over(self, function: str, *arguments: str) -> str:
        """Return SQL that calls another aggregate function over the same rows."""
        where = f" FILTER (WHERE {self.condition}\n)" if self.condition else ""
        return f"{function}({', '.join(arguments or self.arguments)}\n){where}"


@dataclass(frozen=True)
class LocatedCall:
    """A call and the range of its tokens in its item, from `start` up to, not including, `end`."""

    call: Call
    start: int
    end: int


class UnsupportedCall(Exception):  # noqa: N818
    """A call that can't be maintained by partial states. The message says why."""


def find_calls(item: Span) -> Iterator[LocatedCall]:
    """Yield the calls in an item of a SELECT list, in order. Raise an UnsupportedCall for one that can't be merged."""
    index = 0
    while index < len(item.tokens) - 1:
        located = _call_at(item, index)
        if located:
            yield located
        index = located.end if located else index + 1


def _call_at(item: Span, index: int) -> LocatedCall | None:
    tokens = item.tokens
    name = tokens[index].text.lower()
    before = tokens[index - 1].text.lower() if index else ""
    if name not in FUNCTIONS or tokens[index + 1].text != "(" or before in _QUANTIFIED:
        return None
    close = closing(tokens, index + 1)
    inner = item.part(index + 2, close)
    arguments = tuple(split_commas(inner)) if inner else ()
    if arguments and arguments[0].tokens[0].text.upper() in ("DISTINCT", "ALL"):
        raise UnsupportedCall(f"{name}({arguments[0].tokens[0].text.upper()} …) needs all values of a key")
    if any(True for argument in arguments for _ in find_calls(argument)):
        raise UnsupportedCall(f"{name}(…) is over another aggregate")
    end, condition = close + 1, None
    if end < len(tokens) - 1 and tokens[end].text.upper() == "FILTER":
        close = closing(tokens, end + 1)
        inside = item.part(end + 3, close)
        condition, end = (inside.sql if inside else None), close + 1
    if end < len(tokens) and tokens[end].text.lower() in _NOT_PLAIN:
        raise UnsupportedCall(f"{name}(…) {tokens[end].text.upper()}")
    if name == "collect_set" and not _is_ordered(item, index, end):
        raise UnsupportedCall("collect_set(…) has no order: write array_sort(collect_set(…))")
    return LocatedCall(Call(FUNCTIONS[name], tuple(argument.sql for argument in arguments), condition), index, end)


def _is_ordered(item: Span, start: int, end: int) -> bool:
    """Return whether the call from `start` to `end` is the only argument of a function that ignores its order."""
    words = [token.text.lower() for token in item.tokens]
    return start > 1 and words[start - 1] == "(" and words[start - 2] in _ORDERED and words[end : end + 1] == [")"]
