"""The source of a Python table without the settings that decide when a table is built and how long its snapshots stay."""

from __future__ import annotations

import ast

from headrace.spec.loading.functions import DECORATOR, find_decorated

_ARGUMENTS = ("target_lag", "snapshots_for")
"""Settings that don't decide which rows a table has."""


def without_schedule(text: str) -> str:
    """Return a file's text without these arguments of its decorator. Return text without such arguments unchanged.

    The comma and blanks before an argument are removed as well, so that adding, changing and removing the setting all leave
    the same text.
    """
    for argument in _ARGUMENTS:
        text = _without(text, argument)
    return text


def _without(text: str, argument: str) -> str:
    if argument not in text:
        return text
    for _, call in find_decorated(ast.parse(text), DECORATOR):
        keyword = next((keyword for keyword in call.keywords if keyword.arg == argument), None) if call else None
        if call is not None and keyword is not None:
            return _cut(text, call, keyword)
    return text


def _cut(text: str, call: ast.Call, cut: ast.keyword) -> str:
    others = sorted(
        (keyword for keyword in call.keywords if keyword is not cut), key=lambda keyword: (keyword.lineno, keyword.col_offset)
    )
    before = [keyword for keyword in others if (keyword.lineno, keyword.col_offset) < (cut.lineno, cut.col_offset)]
    if before:
        start, end = _end(text, before[-1].value), _end(text, cut.value)
    elif others:
        start, end = _start(text, cut), _start(text, others[0])
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
