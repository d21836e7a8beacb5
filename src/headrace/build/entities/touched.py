"""Resolve the entities that a change touches. Pure: frames in, frames out.

New records touch the entities of the records that they replace, and the entities that share a value or a fuzzy block with them.
Two matching old records belong to one entity, so a touched entity contains all its old pairs. A value that crosses its limit in
either direction touches all records that have it; a value that stays over its limit touches none.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.build.entities.index import PLACE, Lookup
from headrace.build.entities.resolve import Rules, largest_entity, resolve
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED, Match


@dataclass(frozen=True)
class Resolved:
    """`new` are the new records, `changed` the existing ones whose entity changed: keys and resolved columns.

    `was` are the previous index rows of the changed records. `largest_entity` is the number of records in the table's largest
    entity.
    """

    new: pl.DataFrame
    changed: pl.DataFrame
    was: pl.DataFrame
    largest_entity: int


def resolve_change(
    index: Lookup, new: pl.DataFrame, replaced: pl.DataFrame, rules: Rules, *, largest: int | None = None
) -> Resolved:
    """Resolve a table's records after adding the new ones and removing the replaced ones, which are rows of the index.

    `largest` is the number of records in the largest entity so far, or None if unknown.
    """
    keys = list(rules.keys)
    unused = {match.column: _Sharing(match, index, replaced, new) for match in rules.matches}
    entities = [replaced[ENTITY_ID], *(sharing.touched_entities() for sharing in unused.values())]
    if rules.fuzzy:
        entities.append(_others(index.sharing_blocks(new, rules.fuzzy), replaced)[ENTITY_ID])
    touched = pl.concat(entities).unique()
    affected = _others(index.having(ENTITY_ID, touched), replaced)
    known = replaced.select(*keys, ENTITY_ID, PREVIOUS)
    arrived = new.select(*keys, *rules.columns).join(known, on=keys, how="left", nulls_equal=True)

    def taken(ids: pl.Series) -> pl.Series:
        in_use = index.having(ENTITY_ID, ids)[ENTITY_ID]
        return in_use.filter(~in_use.is_in(touched.implode()))

    resolved = resolve(
        pl.concat([arrived, affected.select(arrived.columns)]),
        rules,
        unused={name: sharing.unused(affected) for name, sharing in unused.items()},
        taken=taken,
    )
    added = [ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]
    now = resolved.tail(affected.height).select(*keys, *added)
    differs = pl.select(pl.any_horizontal(now[name].ne_missing(affected[name]) for name in added)).to_series()
    was = pl.concat([replaced[ENTITY_ID], affected[ENTITY_ID]])
    return Resolved(
        resolved.head(arrived.height).select(*keys, *added),
        now.filter(differs),
        affected.filter(differs),
        _largest(index, largest, was=was, now=largest_entity(resolved), touched=touched),
    )


def _largest(index: Lookup, before: int | None, *, was: pl.Series, now: int, touched: pl.Series) -> int:
    """Return the number of records in the largest entity, touched (`now`) or not.

    `was` has the previous entities of the touched records. Other entities are counted only if the previous largest may have
    been touched and has shrunk: counting all records takes longer than a small build.
    """
    if before is not None and now >= before:
        return now
    if before is not None and int(was.value_counts()["count"].max() or 0) < before:  # type: ignore[arg-type]
        return before
    return max(now, index.largest_entity(touched))


def _others(rows: pl.DataFrame, replaced: pl.DataFrame) -> pl.DataFrame:
    return rows.join(replaced, on=PLACE, how="anti")


class _Sharing:
    """The values of one match in a change, with their numbers of records before and after."""

    def __init__(self, match: Match, index: Lookup, replaced: pl.DataFrame, new: pl.DataFrame) -> None:
        self._match = match
        name = match.column
        self._values = pl.concat([replaced[name], new[name]]).drop_nulls().unique()
        # For a value that stays over its limit, this many rows prove it, whichever of them are replaced.
        most = match.max_records + replaced.height + 1
        self._sharing = _others(index.having(name, self._values, most=most), replaced)
        others = self._sharing.group_by(name).len("others")
        counts = pl.DataFrame({name: self._values}).join(others, on=name, how="left")
        for column, frame in (("was", replaced), ("now", new)):
            counts = counts.join(frame.group_by(name).len(column), on=name, how="left")
        counts = counts.fill_null(0)
        over = (pl.col("others") + pl.col("was") > match.max_records, pl.col("others") + pl.col("now") > match.max_records)
        self._counts = counts.select(name, was_over=over[0], is_over=over[1])

    def touched_entities(self) -> pl.Series:
        """Return the entities of the records with a value that is or was within its limit."""
        stays_over = self._counts.filter(pl.col("was_over") & pl.col("is_over"))
        sharing = self._sharing.join(stays_over, on=self._match.column, how="anti")
        return sharing[ENTITY_ID]

    def unused(self, affected: pl.DataFrame) -> pl.Series:
        """Return the values over their limit among the values of the change and of the affected records."""
        name = self._match.column
        before = affected.filter(pl.col(UNUSED).list.contains(name) & ~pl.col(name).is_in(self._values.implode()))
        return pl.concat([self._counts.filter("is_over")[name], before[name]]).unique()
