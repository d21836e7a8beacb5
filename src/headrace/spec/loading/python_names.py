"""Names in the texts of a Python file: its strings and comments, never its code."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable

_TEXTS = frozenset(
    kind for kind in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None)) if kind is not None
)


def change_texts(source: str, change: Callable[[str], str]) -> str:
    """Return a Python file with its strings and comments changed; what is no Python stays as it is."""
    try:
        tokens = [each for each in tokenize.generate_tokens(io.StringIO(source, newline="").readline) if each.type in _TEXTS]
    except (tokenize.TokenError, SyntaxError):
        return source
    lines = source.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    for each in reversed(tokens):
        start, end = (begins[row - 1] + column for row, column in (each.start, each.end))
        source = source[:start] + change(source[start:end]) + source[end:]
    return source
