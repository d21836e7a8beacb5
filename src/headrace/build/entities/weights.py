"""The match weights of each level of each compared column.

The weights are fixed (`levels.LEVELS`) or trained (`training.train_weights`). Trained weights are stored with the table: every
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
"""With fewer records the fixed weights are used: a few matches can't estimate how often a name is mistyped."""


@dataclass(frozen=True)
class Weights:
    """`chance` is the prior probability that two records belong to one entity; `levels` has each compared column's levels."""

    chance: float
    levels: Mapping[str, tuple[Level, ...]]

    @property
    def start(self) -> float:
        """The match weight of a pair before anything is compared."""
        return log2(self.chance / (1 - self.chance))

    def added(self, column: str) -> tuple[float, ...]:
        """Return the match weights of a column's levels, in level order."""
        return tuple(log2(level.m / level.u) for level in self.levels[column])

    def by_gamma(self, column: str) -> dict[int, float]:
        """Return the weights by Splink's level number, which counts from the last level; -1 is a missing value."""
        added = self.added(column)
        return {-1: 0.0, **{len(added) - 1 - number: weight for number, weight in enumerate(added)}}

    def store(self, *, version: int, records: int, trained: Collection[str]) -> TrainedWeights:
        """Return the weights for the table's ledger entry."""
        levels = {column: tuple((level.m, level.u) for level in own) for column, own in self.levels.items()}
        return TrainedWeights(version, records, self.chance, levels, tuple(trained))


def stored_weights(fuzzy: Fuzzy, stored: TrainedWeights) -> Weights:
    """Return the weights from the table's ledger entry."""
    levels = {
        comparison.column: tuple(
            replace(level, m=m, u=u)
            for level, (m, u) in zip(LEVELS[comparison.how], stored.levels[comparison.column], strict=True)
        )
        for comparison in fuzzy.compare
    }
    return Weights(stored.chance, MappingProxyType(levels))


def can_train_now(fuzzy: Fuzzy | None, stored: TrainedWeights | None, *, records: int) -> bool:
    """Return whether a table without trained weights has enough records to train: twice as many as at the last attempt."""
    if fuzzy is None or not fuzzy.train or stored is None or stored.columns:
        return False
    return records >= max(LEAST_RECORDS, 2 * stored.records)


def fixed_weights(fuzzy: Fuzzy) -> Weights:
    """Return the fixed weights of a table's comparisons."""
    levels = {comparison.column: LEVELS[comparison.how] for comparison in fuzzy.compare}
    return Weights(CHANCE, MappingProxyType(levels))
