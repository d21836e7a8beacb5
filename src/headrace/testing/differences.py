"""Describe how two lists of rows differ, whatever their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

_SHOWN = 5


def describe_differences(
    left: Sequence[Mapping[str, object]], right: Sequence[Mapping[str, object]], *, labels: tuple[str, str]
) -> str:
    """Return the rows that only one side has, one per line, or an empty text."""
    lefts, rights = Counter(map(_text, left)), Counter(map(_text, right))
    lines: list[str] = []
    for label, own, other in ((labels[0], lefts, rights), (labels[1], rights, lefts)):
        surplus = sorted((own - other).elements())
        lines += [f"\n  only {label}: {row}" for row in surplus[:_SHOWN]]
        lines += [f"\n  only {label}: {len(surplus) - _SHOWN} more rows"] if len(surplus) > _SHOWN else []
    return "".join(lines)


def _text(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={_plain(value)!r}" for name, value in sorted(row.items()))


def _plain(value: object) -> object:
    """Return a value in one form: a map is a list of pairs in Arrow, and a dictionary in a test."""
    if isinstance(value, list) and value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return {key: _plain(inner) for key, inner in sorted(value)}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in sorted(value.items())}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
