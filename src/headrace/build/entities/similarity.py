"""Jaro-Winkler similarity, exactly as Splink's functions for Spark compute it (Apache Commons Text).

DuckDB's own function differs in two ways. It compares bytes, whereas Java compares UTF-16 code units. And it rounds half
transpositions down, so its similarity is an upper bound. Pairs that DuckDB finds similar are therefore checked with this
function; pairs that it finds different need no check.
"""

from __future__ import annotations

import re

_BOOST_FROM = 0.7
_BOOST = 0.1
_PREFIX = 4
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def jaro_winkler(left: str, right: str) -> float:
    """Return the similarity of two texts, from 0 to 1."""
    if left == right:
        return 1.0
    shorter, longer = sorted((code_units(left), code_units(right)), key=len)
    reach = max(len(longer) // 2 - 1, 0)
    rest, matched = list(longer), []
    for place, unit in enumerate(shorter):
        first = max(place - reach, 0)
        try:
            at = rest.index(unit, first, place + reach + 1)
        except ValueError:
            continue
        matched.append(unit)
        rest[at] = ""
    if not matched:
        return 0.0
    others = [unit for unit, left_over in zip(longer, rest, strict=True) if not left_over]
    moved = sum(unit != other for unit, other in zip(matched, others, strict=True))
    count = len(matched)
    # The order of these operations is Java's: the result must not differ in its last bit.
    jaro = (count / len(shorter) + count / len(longer) + (count - moved / 2) / count) / 3
    return jaro if jaro < _BOOST_FROM else jaro + _BOOST * _common_prefix(shorter, longer) * (1 - jaro)


def code_units(text: str) -> str:
    """Return a text with one character for each UTF-16 code unit: surrogates become private-use characters."""
    return text if text.isascii() else _ASTRAL.sub(_surrogates, text)


def _surrogates(match: re.Match[str]) -> str:
    number = ord(match[0]) - 0x10000
    return chr(0xE000 + (number >> 10)) + chr(0xE400 + (number & 0x3FF))


def _common_prefix(left: str, right: str) -> int:
    count = 0
    for unit, other in zip(left[:_PREFIX], right[:_PREFIX], strict=False):
        if unit != other:
            break
        count += 1
    return count
