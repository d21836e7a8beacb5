"""The notes of builds and `headrace status` on a table of entities."""

from __future__ import annotations

from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.serving.entity_notes import describe_largest, describe_weights

LEVELS = {"name": ((0.8, 0.01), (0.2, 0.99)), "phone": ((0.9, 0.001), (0.1, 0.999))}


def test_entity_above_the_limit_is_warned_of_with_what_to_do() -> None:
    assert describe_largest("mine.index", 100, 100) == describe_largest("mine.index", None, 100) == []
    (sentence,) = describe_largest("mine.index", 1447, 100)
    assert sentence.startswith("mine.index: warning: one entity has 1,447 records, more than largest_entity: 100.")
    assert "raise at_least of fuzzy" in sentence


def test_weights_are_described_by_the_build_that_trained_them() -> None:
    assert describe_weights("mine.index", None) == []
    trained = TrainedWeights(3, 50_000, 1e-4, LEVELS, ("name",))
    assert describe_weights("mine.index", trained) == [
        "mine.index: weights trained in build 3 on 50,000 records; fixed for phone"
    ]
    fixed = TrainedWeights(1, 12, 1e-4, LEVELS)
    assert describe_weights("mine.index", fixed) == ["mine.index: fixed weights; 12 records were too few to train any"]
