"""Rewrite sums over a sliding window as the difference of two running sums.

Spark sums up the whole window for every row. A running sum costs one addition per row: the sum of the last hour is the running
sum up to a row, minus the running sum up to an hour before it. The rewrite is only applied where it is exact: to counts, and to
sums and averages of integers and decimals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.spec.model.layers import LayerTable, Query, Reference
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, ColumnType, Decimal, Primitive
from headrace.spec.sql.aggregates.clauses import Span, closing
from headrace.spec.sql.queries import DIALECT

if TYPE_CHECKING:
    from sqlglot import Token

_FUNCTIONS = ("count", "sum", "avg", "mean")
_SUMMED = Primitive("int")
"""The integer type whose sums can't overflow a BIGINT, and whose averages Spark computes from exact sums."""

_MOST_PRECISION = 28
"""The maximum precision of summed decimals: Spark's sum has ten more digits, up to 38."""

_OTHER_NAMES = frozenset(("JOIN", "LATERAL", "PIVOT", "UNPIVOT"))
"""Keywords that add columns to a query besides those of its table."""

_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}
"""The seconds of each interval unit with a fixed length."""

_FRAME = ("RANGE", "BETWEEN", "INTERVAL")
_FRAME_END = ("PRECEDING", "AND", "CURRENT", "ROW")


def add_running_sums(table: LayerTable, columns: Mapping[TableName, Sequence[Column]]) -> LayerTable:
    """Return a table whose query computes sliding windows by running sums, where that returns the same values."""
    if table.window is None or not isinstance(table.source, Query) or len(table.inputs) != 1:
        return table
    (only,) = table.inputs
    return replace(table, source=_rewrite(table.source, tuple(columns[only])))


@lru_cache(maxsize=256)
def _rewrite(query: Query, columns: tuple[Column, ...]) -> Query:
    import sqlglot

    tokens = tuple(sqlglot.tokenize(query.text, read=DIALECT))
    words = [_word(token) for token in tokens]
    if words.count("SELECT") != 1 or not _OTHER_NAMES.isdisjoint(words) or len(query.references) != 1:
        return query  # a name may be something other than a column of the table
    types = {column.name.lower(): column.type for column in columns}
    calls = [call for call in _find_calls(query.text, tokens) if call.sql(types) is not None]
    text = query.text
    references: tuple[Reference, ...] = query.references
    for call in reversed(calls):
        sql = call.sql(types)
        assert sql is not None
        text = text[: call.start] + sql + text[call.end :]
        longer = len(sql) - (call.end - call.start)
        references = tuple(
            replace(reference, start=reference.start + longer, end=reference.end + longer)
            if reference.start > call.start
            else reference
            for reference in references
        )
    return Query(text, references, query.origin) if calls else query


@dataclass(frozen=True)
class _Call:
    """A call of a function over a sliding window, and its position in the text.

    `rows` is the window specification before its frame, and `seconds` is the length of the frame.
    """

    function: str
    argument: str
    rows: Span
    order_by: str
    seconds: int
    start: int
    end: int

    def sql(self, types: Mapping[str, ColumnType]) -> str | None:
        """Return SQL for the same value by running sums, or None if it would not be exact."""
        kind = _type_of(self.argument, types)
        if _type_of(self.order_by, types) != Primitive("timestamp"):
            return None  # the time before the window is only defined for timestamps, which are whole microseconds
        if self.function == "count":
            return f"({self._count})" if kind or self.argument == "*" else None
        total = f"(sum({self.argument}) OVER {self._up_to} - {self._before('sum')})"
        if kind == _SUMMED:
            value = total if self.function == "sum" else f"CAST({total} AS DOUBLE) / CAST({self._count} AS DOUBLE)"
        elif isinstance(kind, Decimal) and kind.precision <= _MOST_PRECISION and self.function == "sum":
            value = f"CAST({total} AS DECIMAL({kind.precision + 10}, {kind.scale}))"
        else:
            return None
        return f"IF({self._count} > 0, {value}, NULL)"

    @property
    def _count(self) -> str:
        return f"(count({self.argument}) OVER {self._up_to} - {self._before('count')})"

    @property
    def _up_to(self) -> str:
        return f"({self.rows.sql} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"

    def _before(self, function: str) -> str:
        """Return SQL for the running sum before the window. For a row with a null time, the window has only such rows."""
        end = f"INTERVAL '{self.seconds}.000001' SECOND"
        frame = f"({self.rows.sql} RANGE BETWEEN UNBOUNDED PRECEDING AND {end} PRECEDING)"
        return f"IF({self.order_by} IS NULL, 0, coalesce({function}({self.argument}) OVER {frame}, 0))"


def _find_calls(text: str, tokens: tuple[Token, ...]) -> Iterator[_Call]:
    """Yield the calls over a window that ends at the current row, in the order of the text."""
    words = [_word(token) for token in tokens]
    named = dict(_named_windows(tokens))
    for index, word in enumerate(words[:-4]):
        if word.lower() not in _FUNCTIONS or words[index + 1] != "(":
            continue
        close = closing(tokens, index + 1)
        if words[close + 1 : close + 2] != ["OVER"] or close + 2 >= len(tokens):
            continue
        argument = Span(text, tokens[index + 2 : close])
        if words[close + 2] == "(":
            last = closing(tokens, close + 2)
            window = tokens[close + 3 : last]
        else:
            last = close + 2
            window = named.get(tokens[last].text.lower(), ())
        sliding = _read_window(text, window)
        if sliding and _is_name(argument.tokens):
            rows, order_by, seconds = sliding
            function = "avg" if word.lower() == "mean" else word.lower()
            yield _Call(function, argument.sql, rows, order_by, seconds, tokens[index].start, tokens[last].end + 1)


def _named_windows(tokens: Sequence[Token]) -> Iterator[tuple[str, tuple[Token, ...]]]:
    """Yield the windows of the WINDOW clause by name in lower case."""
    words = [_word(token) for token in tokens]
    for index in range(len(words) - 2):
        after_window = index and words[index - 1] in ("WINDOW", ",")
        if after_window and words[index + 1 : index + 3] == ["AS", "("] and "WINDOW" in words[:index]:
            yield tokens[index].text.lower(), tuple(tokens[index + 3 : closing(tokens, index + 2)])


def _read_window(text: str, tokens: Sequence[Token]) -> tuple[Span, str, int] | None:
    """Return a window before its frame, its ordering, and the seconds of its frame, or None for an unsupported form."""
    words = [_word(token) for token in tokens]
    if "RANGE" not in words or "ORDER BY" not in words:
        return None
    frame, order_by = words.index("RANGE"), tokens[words.index("ORDER BY") + 1 : words.index("RANGE")]
    begins, ends = tuple(words[frame : frame + 3]) == _FRAME, tuple(words[frame + 5 :]) == _FRAME_END
    if not begins or not ends or not _is_name(order_by):
        return None
    number, unit = tokens[frame + 3].text, words[frame + 4].removesuffix("S")
    if not number.isdecimal() or unit not in _UNITS:
        return None
    return Span(text, tuple(tokens[:frame])), Span(text, tuple(order_by)).sql, int(number) * _UNITS[unit]


def _is_name(tokens: Sequence[Token]) -> bool:
    """Return whether tokens are a column, optionally qualified, or a star."""
    if len(tokens) == 3:
        return tokens[1].text == "." and _is_name(tokens[:1]) and _is_name(tokens[2:])
    return len(tokens) == 1 and tokens[0].token_type.name in ("VAR", "IDENTIFIER", "STAR")


def _type_of(name: str, types: Mapping[str, ColumnType]) -> ColumnType | None:
    """Return the type of a column by its name, optionally qualified, or None for a field of a struct."""
    table, _, column = (part.strip("`").lower() for part in name.rpartition("."))
    return None if table in types else types.get(column)


def _word(token: Token) -> str:
    """Return a word in upper case, or an empty text for quoted names and strings."""
    return "" if token.token_type.name in ("IDENTIFIER", "STRING") else token.text.upper()
