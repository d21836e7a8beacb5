"""Decide which GROUP BY queries can be maintained by adding and subtracting partial states, and by which states."""

from headrace.spec.sql.aggregates.calls import UnsupportedCall
from headrace.spec.sql.aggregates.decompose import Decomposition, Recomputed, decompose, has_unique_keys
from headrace.spec.sql.aggregates.states import CallStates, StateField, choose_states

__all__ = [
    "CallStates",
    "Decomposition",
    "Recomputed",
    "StateField",
    "UnsupportedCall",
    "choose_states",
    "decompose",
    "has_unique_keys",
]
