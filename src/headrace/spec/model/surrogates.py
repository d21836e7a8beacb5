"""Unpaired surrogates in JSON: the grammar allows `"\\ud800"`, and UTF-8 can't encode it."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair is a character
    rb"|\\u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\.",  # any other escape: its backslash must not be taken for the beginning of the next
    re.DOTALL,
)


def keep_lone_surrogates(written: bytes) -> bytes:
    """Return JSON with each unpaired surrogate replaced by the text of its escape: a backslash and five characters.

    All other bytes are unchanged.
    """
    if b"\\ud" not in written and b"\\uD" not in written:
        return written
    return _ESCAPES.sub(_escape_lone, written)


def _escape_lone(match: re.Match[bytes]) -> bytes:
    return match[0] if match["lone"] is None else b"\\" + match[0]
