"""Which entities a change touches, and what becomes of them. Pure: frames in, frames out.

New records touch their own clusters: the entities of the records that they replace, and those that share a value with them,
or a block of fuzzy matching. Two old records that are alike are of one entity, so a touched entity has all its old pairs in it.
A value that goes over its limit, or comes back under it, touches all records that have it; one that stays over it touches none.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.build.entities.index import PLACE, Lookup
from headrace.build.entities.resolve import Rules, largest_entity, resolve
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED, Match


@dataclass(frozen=True)
class Resolved:
    """`new` are the records that came, `changed` those that were there and whose entity changed: keys and what was resolved.

    `was` are the rows of the index that changed, as they were. `largest_entity` is how many records the largest entity of the
    table has then.
    """

    new: pl.DataFrame
    changed: pl.DataFrame
    was: pl.DataFrame
    largest_entity: int


def resolve_change(
    index: Lookup, new: pl.DataFrame, replaced: pl.DataFrame, rules: Rules, *, largest: int | None = None
) -> Resolved:
    """Return what becomes of a table's records when the new ones come and the replaced ones, rows of the index, go.

    `largest` is how many records the largest entity has had; None where that is not known.
    """
    keys = list(rules.keys)
    unused = {each.column: _Sharing(each, index, replaced, new) for each in rules.matches}
    entities = [replaced[ENTITY_ID], *(sharing.touched_entities() for sharing in unused.values())]
    if rules.fuzzy:
        entities.append(_others(index.sharing_blocks(new, rules.fuzzy), replaced)[ENTITY_ID])
    touched = pl.concat(entities).unique()
    affected = _others(index.having(ENTITY_ID, touched), replaced)
    known = replaced.select(*keys, ENTITY_ID, PREVIOUS)
    came = new.select(*keys, *rules.columns).join(known, on=keys, how="left", nulls_equal=True)

    def taken(ids: pl.Series) -> pl.Series:
        found = index.having(ENTITY_ID, ids)[ENTITY_ID]
        return found.filter(~found.is_in(touched.implode()))

    resolved = resolve(
        pl.concat([came, affected.select(came.columns)]),
        rules,
        unused={name: sharing.unused(affected) for name, sharing in unused.items()},
        taken=taken,
    )
    added = [ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]
    now = resolved.tail(affected.height).select(*keys, *added)
    differs = pl.select(pl.any_horizontal(now[name].ne_missing(affected[name]) for name in added)).to_series()
    was = pl.concat([replaced[ENTITY_ID], affected[ENTITY_ID]])
    return Resolved(
        resolved.head(came.height).select(*keys, *added),
        now.filter(differs),
        affected.filter(differs),
        _largest(index, largest, was=was, now=largest_entity(resolved), touched=touched),
    )


def _largest(index: Lookup, before: int | None, *, was: pl.Series, now: int, touched: pl.Series) -> int:
    """Return how many records the largest entity has: of those touched, which have `now`, or of all others.

    `was` has the entities of the touched records as they were. The others are counted only where the largest of `before` may
    have been among the touched ones and has become smaller: to count all records takes longer than a small build.
    """
    if before is not None and now >= before:
        return now
    if before is not None and int(was.value_counts()["count"].max() or 0) < before:  # type: ignore[arg-type]
        return before
    return max(now, index.largest_entity(touched))


def _others(rows: pl.DataFrame, replaced: pl.DataFrame) -> pl.DataFrame:
    return rows.join(replaced, on=PLACE, how="anti")


class _Sharing:
    """The values of one match that a change is about: how many records had each, and how many have it now."""

    def __init__(self, match: Match, index: Lookup, replaced: pl.DataFrame, new: pl.DataFrame) -> None:
        self._match = match
        name = match.column
        self._values = pl.concat([replaced[name], new[name]]).drop_nulls().unique()
        # Of a value that stays over its limit only that is asked: as many rows tell it, whichever of them are replaced.
        most = match.max_records + replaced.height + 1
        self._sharing = _others(index.having(name, self._values, most=most), replaced)
        there = self._sharing.group_by(name).len("there")
        counts = pl.DataFrame({name: self._values}).join(there, on=name, how="left")
        for column, frame in (("was", replaced), ("now", new)):
            counts = counts.join(frame.group_by(name).len(column), on=name, how="left")
        counts = counts.fill_null(0)
        over = (pl.col("there") + pl.col("was") > match.max_records, pl.col("there") + pl.col("now") > match.max_records)
        self._counts = counts.select(name, was_over=over[0], is_over=over[1])

    def touched_entities(self) -> pl.Series:
        """Return the entities of the records that share a value which is or was used."""
        stays_over = self._counts.filter(pl.col("was_over") & pl.col("is_over"))
        found = self._sharing.join(stays_over, on=self._match.column, how="anti")
        return found[ENTITY_ID]

    def unused(self, affected: pl.DataFrame) -> pl.Series:
        """Return the values that too many records share, among those of the change and of the affected records."""
        name = self._match.column
        before = affected.filter(pl.col(UNUSED).list.contains(name) & ~pl.col(name).is_in(self._values.implode()))
        return pl.concat([self._counts.filter("is_over")[name], before[name]]).unique()
