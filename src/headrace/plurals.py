"""Numbers in sentences."""

from __future__ import annotations


def count_of(number: int, noun: str) -> str:
    """Return how many there are: `1 table`, `1,200 tables`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count_that_are(number: int, noun: str) -> str:
    """Return the beginning of a sentence about them: `1 table is`, `1,200 tables are`."""
    return f"{count_of(number, noun)} {'is' if number == 1 else 'are'}"
