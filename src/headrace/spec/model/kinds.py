"""The kinds of tables and their traits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["append", "upsert", "history", "aggregate", "features", "entities", "full"]


@dataclass(frozen=True)
class KindTraits:
    """The traits of all tables of a kind.

    With `rewrites_all`, every build rewrites all rows. With `keeps_versions`, a key has a row per version. With `adds_states`,
    partial aggregation states may be stored with the rows. With `reads_new_rows`, a build reads only the new rows of a driver.
    Without `scans_own_rows`, a build never scans the table's own rows with Spark. With `has_events`, the query returns events
    by key, and the table keeps the newest one or all versions.
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
