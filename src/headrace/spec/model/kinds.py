"""The kinds of tables, and what can be said of each without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["append", "upsert", "history", "aggregate", "features", "entities", "full"]


@dataclass(frozen=True)
class KindTraits:
    """What all tables of a kind have in common.

    With `rewrites_all`, every build writes all rows again. With `keeps_versions`, a key has a row for each of its versions.
    With `adds_states`, partial states may be stored beside the rows. With `reads_new_rows`, new rows of a driver are all that a
    build reads of it. Without `scans_own_rows`, Spark never scans the table's own rows for a build. With `has_events`, the
    query gives events of keys, of which the newest or all versions are kept.
    """

    rewrites_all: bool = False
    keeps_versions: bool = False
    adds_states: bool = False
    reads_new_rows: bool = False
    scans_own_rows: bool = True
    has_events: bool = False


TRAITS: Mapping[Kind, KindTraits] = MappingProxyType(
    {
        "append": KindTraits(reads_new_rows=True),
        "upsert": KindTraits(reads_new_rows=True, has_events=True),
        "history": KindTraits(reads_new_rows=True, keeps_versions=True, has_events=True),
        "aggregate": KindTraits(adds_states=True),
        "features": KindTraits(),
        "entities": KindTraits(reads_new_rows=True, scans_own_rows=False),
        "full": KindTraits(rewrites_all=True),
    }
)
