"""Resolve records to entities in three steps: edges, clusters, stable ids. Pure: frames in, frames out.

A frame of records has the keys, a column of values for each match, `oldest_by`, and the stored `entity_id` and
`previous_entity_ids`, which are null for a new record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from headrace.build.entities.alike import LEFT, PAIRS, RIGHT, Score, compare_all, confidence
from headrace.build.entities.clusters import connected_components
from headrace.build.entities.ids import Taken, stable_ids
from headrace.build.entities.names import CLUSTER, NODE
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.matching import ENTITY_ID, UNUSED, Match


@dataclass(frozen=True)
class Rules:
    """The settings that resolve a table's records: keys, age and matches.

    `score` weighs pairs of records if the settings have `fuzzy`.
    """

    keys: tuple[str, ...]
    oldest_by: str
    matches: tuple[Match, ...]
    fuzzy: Fuzzy | None = None
    score: Score | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed to resolve a record, except the keys."""
        compared = self.fuzzy.columns if self.fuzzy else ()
        names = dict.fromkeys((self.oldest_by, *(match.column for match in self.matches), *compared))
        return tuple(name for name in names if name not in self.keys)


Unused = Mapping[str, pl.Series]
"""The values of each match column that too many records share."""


def resolve(records: pl.DataFrame, rules: Rules, *, unused: Unused, taken: Taken | None = None) -> pl.DataFrame:
    """Return the records in their order with entity id, previous ids, confidence and unused matches.

    `taken` returns the ids of entities outside of the records: no new entity gets one of them.
    """
    numbered = records.with_row_index(NODE)
    left, right = edges(numbered, rules.matches, unused=unused)
    pairs = PAIRS.to_frame()
    if rules.fuzzy and rules.score:
        pairs = compare_all(numbered, rules.fuzzy, keys=rules.keys, score=rules.score)
    cluster = connected_components(pl.concat([left, pairs[LEFT]]), pl.concat([right, pairs[RIGHT]]), nodes=records.height)
    with_ids = stable_ids(numbered.with_columns(cluster.alias(CLUSTER)), rules.keys, oldest_by=rules.oldest_by, taken=taken)
    sure = confidence(records.height, exact=(left, right), pairs=pairs)
    return with_ids.drop(NODE, CLUSTER).with_columns(not_used(rules.matches, unused), sure)


def largest_entity(records: pl.DataFrame) -> int:
    """Return the number of records in the largest entity, or 0 without records."""
    return int(records.group_by(ENTITY_ID).len()["len"].max() or 0)  # type: ignore[arg-type]


def edges(records: pl.DataFrame, matches: Sequence[Match], *, unused: Unused) -> tuple[pl.Series, pl.Series]:
    """Return pairs of records that share a value: each record with the first one, to keep their number low."""
    left, right = [], []
    for match in matches:
        value = pl.col(match.column)
        sharing = records.select(NODE, value).filter(value.is_not_null() & ~value.is_in(unused[match.column].implode()))
        pairs = sharing.select(NODE, pl.col(NODE).min().over(match.column).alias("first"))
        pairs = pairs.filter(pl.col(NODE) != pl.col("first"))
        left.append(pairs[NODE])
        right.append(pairs["first"])
    return pl.concat(left), pl.concat(right)


def shared_too_widely(records: pl.DataFrame, match: Match) -> pl.Series:
    """Return the values that more records share than the match allows. Needs all records of the table.

    Hashes are counted first, and values only for frequent hashes, which are few.
    """
    values = records.select(pl.col(match.column).alias("value")).drop_nulls()
    hashed = values.select(pl.col("value").hash().alias("hash"))
    many = hashed.group_by("hash").len().filter(pl.col("len") > match.max_records)["hash"]
    counts = values.filter(hashed["hash"].is_in(many.implode())).group_by("value").len()
    return counts.filter(pl.col("len") > match.max_records)["value"].alias(match.column)


def not_used(matches: Sequence[Match], unused: Unused) -> pl.Expr:
    """Return the expression for a record's match columns with an unused value."""
    named = [
        pl.when(pl.col(match.column).is_in(unused[match.column].implode())).then(pl.lit(match.column)) for match in matches
    ]
    return pl.concat_list(named).list.drop_nulls().alias(UNUSED)
