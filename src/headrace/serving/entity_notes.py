"""Notes on a table of entities for its build lines and `headrace status`."""

from __future__ import annotations

from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.plurals import count_of


def describe_largest(table: str, largest: int | None, expected: int | None) -> list[str]:
    """Return a warning if an entity has so many records that fuzzy matches may have chained different people together."""
    if largest is None or expected is None or largest <= expected:
        return []
    return [
        f"{table}: warning: one entity has {largest:,} records, more than largest_entity: {expected:,}. "
        "It may combine different people: raise at_least of fuzzy, or lower max_records of a match."
    ]


def describe_weights(table: str, weights: TrainedWeights | None) -> list[str]:
    """Return a note about the weights of a table that trains them."""
    if weights is None:
        return []
    if not weights.columns:
        return [f"{table}: fixed weights; {count_of(weights.records, 'record')} were too few to train any"]
    fixed = [name for name in weights.levels if name not in weights.columns]
    rest = f"; fixed for {', '.join(fixed)}" if fixed else ""
    return [f"{table}: weights trained in build {weights.version} on {count_of(weights.records, 'record')}{rest}"]
