"""Every kind of table has a strategy, and its traits don't depend on an engine."""

from __future__ import annotations

from typing import get_args

from headrace.build.strategies.registry import _STRATEGIES
from headrace.spec.model.kinds import TRAITS, Kind


def test_every_kind_has_one_strategy_and_traits() -> None:
    kinds = set(get_args(Kind))
    assert set(_STRATEGIES) == set(TRAITS) == kinds
    assert len({type(strategy) for strategy in _STRATEGIES.values()}) == len(kinds)
