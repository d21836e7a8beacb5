"""Which entities a change touches, and what becomes of them. Pure: frames in, frames out.

New records touch their own clusters: the entities of the records that they replace, and those that share a value with them,
or a block of fuzzy matching. Two old records that are alike are of one entity, so a touched entity has all its old pairs in it.
A value that goes over its limit, or comes back under it, touches all records that have it; one that stays over it touches none.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.layers.entities.alike import share_block
from headrace.layers.entities.index import FILE_NUMBER
from headrace.layers.entities.resolve import Rules, resolve
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED, Match


@dataclass(frozen=True)
class Resolved:
    """`new` are the records that came, `changed` those that were there and whose entity changed: keys and what was resolved.

    `files` are the numbers of the files that hold rows which change or go.
    """

    new: pl.DataFrame
    changed: pl.DataFrame
    files: tuple[int, ...]


def resolve_change(index: pl.DataFrame, new: pl.DataFrame, touched: pl.DataFrame, rules: Rules) -> Resolved:
    """Gives back what becomes of a table's records when those of the touched keys become the new ones; others of them go."""
    keys = list(rules.keys)
    replaced = index.join(touched, on=keys, how="semi", nulls_equal=True)
    others = index.join(touched, on=keys, how="anti", nulls_equal=True) if replaced.height else index
    unused = {each.column: _Sharing(each, others, replaced, new) for each in rules.matches}
    entities = [replaced[ENTITY_ID], *(sharing.touched_entities() for sharing in unused.values())]
    if rules.fuzzy:
        entities.append(others.filter(share_block(others, new, rules.fuzzy))[ENTITY_ID])
    mine = pl.col(ENTITY_ID).is_in(pl.concat(entities).unique().implode())
    affected = others.filter(mine)
    known = replaced.select(*keys, ENTITY_ID, PREVIOUS)
    came = new.select(*keys, *rules.columns).join(known, on=keys, how="left", nulls_equal=True)
    was = affected.select(*came.columns, UNUSED, CONFIDENCE, FILE_NUMBER)
    resolved = resolve(
        pl.concat([came, was.select(came.columns)]),
        rules,
        unused={name: sharing.unused(affected) for name, sharing in unused.items()},
        taken=others.filter(~mine)[ENTITY_ID],
    )
    added = [ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]
    now = resolved.tail(was.height).select(*keys, *added).with_columns(was[FILE_NUMBER])
    differs = pl.any_horizontal(now[name].ne_missing(was[name]) for name in added)
    changed = now.filter(pl.select(differs).to_series())
    files = pl.concat([replaced[FILE_NUMBER], changed[FILE_NUMBER]]).unique().sort()
    return Resolved(resolved.head(came.height).select(*keys, *added), changed.drop(FILE_NUMBER), tuple(files))


class _Sharing:
    """The values of one match that a change is about: how many records had each, and how many have it now."""

    def __init__(self, match: Match, others: pl.DataFrame, replaced: pl.DataFrame, new: pl.DataFrame) -> None:
        self._match = match
        name = match.column
        self._values = pl.concat([replaced[name], new[name]]).drop_nulls().unique()
        self._sharing = others.filter(pl.col(name).is_in(self._values.implode())).select(name, ENTITY_ID)
        there = self._sharing.group_by(name).len("there")
        counts = pl.DataFrame({name: self._values}).join(there, on=name, how="left")
        for column, frame in (("was", replaced), ("now", new)):
            counts = counts.join(frame.group_by(name).len(column), on=name, how="left")
        counts = counts.fill_null(0)
        over = (pl.col("there") + pl.col("was") > match.max_records, pl.col("there") + pl.col("now") > match.max_records)
        self._counts = counts.select(name, was_over=over[0], is_over=over[1])

    def touched_entities(self) -> pl.Series:
        """Gives back the entities of the records that share a value which is or was used."""
        stays_over = self._counts.filter(pl.col("was_over") & pl.col("is_over"))
        found = self._sharing.join(stays_over, on=self._match.column, how="anti")
        return found[ENTITY_ID]

    def unused(self, affected: pl.DataFrame) -> pl.Series:
        """Gives back the values that too many records share, among those of the change and of the affected records."""
        name = self._match.column
        before = affected.filter(pl.col(UNUSED).list.contains(name) & ~pl.col(name).is_in(self._values.implode()))
        return pl.concat([self._counts.filter("is_over")[name], before[name]]).unique()
