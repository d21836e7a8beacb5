"""Similarity levels of compared values with their probabilities: for records of one entity (m), and of different entities (u).

The probabilities are fixed, so a pair's weight depends only on its two records, and incremental builds give the same result as
a refresh. They are part of a table's definition: changing one refreshes the tables that use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from headrace.spec.model.fuzzy import How

CHANCE = 0.0001
"""The prior probability that two records belong to one entity."""


@dataclass(frozen=True)
class Level:
    """A test of two values, tried in order; `limit` is the minimum similarity, or the maximum distance."""

    test: Literal["equal", "equal_mailbox", "jaro_winkler", "levenshtein", "else"]
    m: float
    u: float
    limit: float = 0.0


_LEVELS: dict[How, tuple[Level, ...]] = {
    "exact": (Level("equal", 0.95, 0.01), Level("else", 0.05, 0.99)),
    "name": (
        Level("equal", 0.80, 0.004),
        Level("jaro_winkler", 0.10, 0.002, 0.92),
        Level("jaro_winkler", 0.05, 0.004, 0.88),
        Level("else", 0.05, 0.99),
    ),
    "email": (
        Level("equal", 0.70, 0.00005),
        Level("equal_mailbox", 0.12, 0.0005),
        Level("jaro_winkler", 0.10, 0.002, 0.92),
        Level("else", 0.08, 0.99745),
    ),
    "phone": (Level("equal", 0.80, 0.0001), Level("levenshtein", 0.08, 0.0004, 1), Level("else", 0.12, 0.9995)),
    "date": (Level("equal", 0.90, 0.0001), Level("levenshtein", 0.05, 0.002, 1), Level("else", 0.05, 0.9979)),
}
LEVELS: Mapping[How, tuple[Level, ...]] = MappingProxyType(_LEVELS)
"""The levels of each kind of comparison. A missing value is neutral."""
