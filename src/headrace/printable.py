"""Text from data that is safe to print: what a terminal would obey, and what turns a line around, is shown as an escape."""

from __future__ import annotations

import json
import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters with C1 (ANSI and OSC sequences begin with one), bidirectional and other invisible format characters,
halves of surrogate pairs, and separators of lines and paragraphs."""
_JOINERS = "\u200c\u200d"
"""Persian and the scripts of India are wrong without them, and so are many emoji; they move nothing."""


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Return a text in which characters that are unsafe to print are escaped as in JSON, so that JSON stays what it was.

    Those in `keep` are left: line breaks and tabs, where the text has lines of its own.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or not _is_unsafe(character, keep) else _escape(character) for character in text
    )


def one_line(text: str) -> str:
    """Return a text that is safe to print and stays on its line: line breaks and tabs are escaped, too."""
    return printable(text, keep="")


def _is_unsafe(character: str, keep: str) -> bool:
    return character not in keep and character not in _JOINERS and unicodedata.category(character) in _UNSAFE


def _escape(character: str) -> str:
    """Return a character as JSON escapes it: control characters by their number, the rest of Unicode as one or two halves."""
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if short:
        return short
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else json.dumps(character)[1:-1]
