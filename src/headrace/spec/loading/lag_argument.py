"""The source of a Python table without its `target_lag`, which decides when the table is built and not what rows it has."""

from __future__ import annotations

import ast

from headrace.spec.loading.functions import DECORATOR, find_decorated

_ARGUMENT = "target_lag"


def without_target_lag(text: str) -> str:
    """Return a file's text as it would be without `target_lag` in its decorator; text without one stays as it is.

    The argument goes with the comma and the blanks before it, so that adding the setting to a file, changing it and
    removing it again all leave the same text.
    """
    if _ARGUMENT not in text:
        return text
    for _, call in find_decorated(ast.parse(text), DECORATOR):
        lag = next((each for each in call.keywords if each.arg == _ARGUMENT), None) if call else None
        if call is not None and lag is not None:
            return _cut(text, call, lag)
    return text


def _cut(text: str, call: ast.Call, lag: ast.keyword) -> str:
    others = sorted((each for each in call.keywords if each is not lag), key=lambda each: (each.lineno, each.col_offset))
    before = [each for each in others if (each.lineno, each.col_offset) < (lag.lineno, lag.col_offset)]
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
    """Return the byte of a place that `ast` names by its line and the bytes before it in that line."""
    return sum(len(each) + 1 for each in text.encode("utf-8").split(b"\n")[: line - 1]) + column
