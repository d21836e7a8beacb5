"""Change the strings and comments of a Python file, never its code."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable

_TEXTS = frozenset(
    kind for kind in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None)) if kind is not None
)


def change_texts(source: str, change: Callable[[str], str]) -> str:
    """Return a Python file with its strings and comments changed. Return text that is not valid Python unchanged."""
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(source, newline="").readline) if token.type in _TEXTS]
    except (tokenize.TokenError, SyntaxError):
        return source
    lines = source.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    for token in reversed(tokens):
        start, end = (begins[row - 1] + column for row, column in (token.start, token.end))
        source = source[:start] + change(source[start:end]) + source[end:]
    return source
