"""The strategy of each kind of table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headrace.build.strategies.aggregate import Aggregate
from headrace.build.strategies.append import Append
from headrace.build.strategies.entities import Entities
from headrace.build.strategies.features import Features
from headrace.build.strategies.full import Full
from headrace.build.strategies.history import History
from headrace.build.strategies.strategy import Strategy
from headrace.build.strategies.upsert import Upsert
from headrace.spec.model.kinds import Kind
from headrace.spec.model.layers import LayerTable

_STRATEGIES: Mapping[Kind, Strategy] = MappingProxyType(
    {
        "append": Append(),
        "upsert": Upsert(),
        "history": History(),
        "aggregate": Aggregate(),
        "features": Features(),
        "entities": Entities(),
        "full": Full(),
    }
)


def strategy_of(table: LayerTable) -> Strategy:
    """Return the strategy that builds a table."""
    return _STRATEGIES[table.kind]
