"""How much each level of each compared column adds to a pair's match weight.

The weights are fixed (`levels.LEVELS`) or trained (`training.train_weights`). Trained ones are stored with the table: every
build until the next full refresh uses the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import log2
from types import MappingProxyType

from headrace.build.entities.levels import CHANCE, LEVELS, Level
from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.spec.model.fuzzy import Fuzzy

LEAST_RECORDS = 1_000
"""Below this the fixed weights are used: a handful of matches says little about how often a name is mistyped."""


@dataclass(frozen=True)
class Weights:
    """`chance` is the probability that any two records are one entity; `levels` are those of each compared column."""

    chance: float
    levels: Mapping[str, tuple[Level, ...]]

    @property
    def start(self) -> float:
        """The match weight of a pair before anything is compared."""
        return log2(self.chance / (1 - self.chance))

    def added(self, column: str) -> tuple[float, ...]:
        """Return what each level of a column adds to the match weight, in the order of the levels."""
        return tuple(log2(level.m / level.u) for level in self.levels[column])

    def by_gamma(self, column: str) -> dict[int, float]:
        """Return what each level adds by Splink's number: it counts them from the last one, and a missing value is -1."""
        added = self.added(column)
        return {-1: 0.0, **{len(added) - 1 - number: weight for number, weight in enumerate(added)}}

    def store(self, *, version: int, records: int, trained: Collection[str]) -> TrainedWeights:
        """Return the weights as the table's ledger keeps them."""
        levels = {column: tuple((level.m, level.u) for level in found) for column, found in self.levels.items()}
        return TrainedWeights(version, records, self.chance, levels, tuple(trained))


def stored_weights(fuzzy: Fuzzy, stored: TrainedWeights) -> Weights:
    """Return the weights that the table's ledger keeps."""
    levels = {
        each.column: tuple(
            replace(level, m=m, u=u) for level, (m, u) in zip(LEVELS[each.how], stored.levels[each.column], strict=True)
        )
        for each in fuzzy.compare
    }
    return Weights(stored.chance, MappingProxyType(levels))


def can_train_now(fuzzy: Fuzzy | None, stored: TrainedWeights | None, *, records: int) -> bool:
    """Return whether a table that could train no weights has enough records by now: twice as many as when it last tried."""
    if fuzzy is None or not fuzzy.train or stored is None or stored.columns:
        return False
    return records >= max(LEAST_RECORDS, 2 * stored.records)


def fixed_weights(fuzzy: Fuzzy) -> Weights:
    """Return the weights of a table that trains none."""
    return Weights(CHANCE, MappingProxyType({each.column: LEVELS[each.how] for each in fuzzy.compare}))
