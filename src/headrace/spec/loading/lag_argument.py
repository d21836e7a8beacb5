"""The source of a Python table without `target_lag`, which decides when a table is built, not which rows it has."""

from __future__ import annotations

import ast

from headrace.spec.loading.functions import DECORATOR, find_decorated

_ARGUMENT = "target_lag"


def without_target_lag(text: str) -> str:
    """Return a file's text without `target_lag` in its decorator. Return text without the argument unchanged.

    The comma and blanks before the argument are removed as well, so that adding, changing and removing the setting all leave
    the same text.
    """
    if _ARGUMENT not in text:
        return text
    for _, call in find_decorated(ast.parse(text), DECORATOR):
        lag = next((keyword for keyword in call.keywords if keyword.arg == _ARGUMENT), None) if call else None
        if call is not None and lag is not None:
            return _cut(text, call, lag)
    return text


def _cut(text: str, call: ast.Call, lag: ast.keyword) -> str:
    others = sorted(
        (keyword for keyword in call.keywords if keyword is not lag), key=lambda keyword: (keyword.lineno, keyword.col_offset)
    )
    before = [keyword for keyword in others if (keyword.lineno, keyword.col_offset) < (lag.lineno, lag.col_offset)]
    if before:
        start, end = _end(text, before[-1].value), _end(text, lag.value)
    elif others:
        start, end = _start(text, lag), _start(text, others[0])
    else:
        start, end = _end(text, call.func), _end(text, call)
    source = text.encode("utf-8")  # ast counts bytes
    return (source[:start] + source[end:]).decode("utf-8")


def _start(text: str, node: ast.keyword) -> int:
    return _offset(text, node.lineno, node.col_offset)


def _end(text: str, node: ast.expr) -> int:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _offset(text, node.end_lineno, node.end_col_offset)


def _offset(text: str, line: int, column: int) -> int:
    """Return the byte offset of a position that `ast` gives as line and byte column."""
    return sum(len(row) + 1 for row in text.encode("utf-8").split(b"\n")[: line - 1]) + column
