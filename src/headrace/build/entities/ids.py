"""Ids that last: an entity keeps its id while it grows; when two merge the older stays; when one splits, one part has it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import polars as pl

from headrace.build.entities.names import CLUSTER, NODE
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS

_AGE, _NEW, _OWNER = "__age", "__new", "__owner"

Taken = Callable[[pl.Series], pl.Series]
"""Returns those of some ids that entities have which are not among the records that are resolved."""


def own_id(key: Sequence[object], *, again: int = 0) -> str:
    """Return the id of the entity that a record is the first of: a digest of 128 bits of its key.

    `again` makes another one, for a record that went and came back while its first id is still in use.
    """
    text = repr((*key, again) if again else tuple(key))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def stable_ids(records: pl.DataFrame, keys: Sequence[str], *, oldest_by: str, taken: Taken | None = None) -> pl.DataFrame:
    """Return the records with the id of their cluster, and with the ids that it had before it was merged into an older one.

    An id belongs to the cluster with the record that gave it, or, where that one is gone, the oldest that has it. Of the ids
    that belong to a cluster the oldest stays. A cluster without one gets that of its oldest record.
    """
    age = pl.col(oldest_by).rank("dense").fill_null(records.height + 1).cast(pl.UInt32).alias(_AGE)
    aged = records.select(NODE, CLUSTER, ENTITY_ID, *keys, age)
    owned = _owners(aged, keys)
    kept = _first(owned, CLUSTER, keys)
    chosen = kept.select(CLUSTER, pl.col(ENTITY_ID).alias(_NEW))
    without = aged.join(chosen, on=CLUSTER, how="anti") if chosen.height else aged
    chosen = pl.concat([chosen, _new_ids(_first(without, CLUSTER, keys), keys, owned[ENTITY_ID], taken)])
    entity = _spread(chosen, records[CLUSTER])
    return records.with_columns(_previous(records, entity, owned).alias(PREVIOUS), entity.alias(ENTITY_ID))


def _owners(aged: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return, for each id that is there, its oldest record, and as its cluster the one that the id belongs to."""
    known = aged.filter(pl.col(ENTITY_ID).is_not_null())
    ids = _first(known, ENTITY_ID, keys)
    split = known.filter(pl.col(CLUSTER).n_unique().over(ENTITY_ID) > 1) if known.height else known
    if split.is_empty():
        return ids
    own = pl.Series(_NEW, [own_id(key) for key in split.select(*keys).iter_rows()], dtype=pl.String)
    anchors = split.with_columns(own).filter(pl.col(_NEW) == pl.col(ENTITY_ID))
    found = ids.join(anchors.select(ENTITY_ID, pl.col(CLUSTER).alias(_OWNER)), on=ENTITY_ID, how="left")
    return found.with_columns(pl.coalesce(_OWNER, CLUSTER).alias(CLUSTER)).drop(_OWNER)


def _first(rows: pl.DataFrame, by: str, keys: Sequence[str]) -> pl.DataFrame:
    """Return the oldest row of each value of a column; keys decide between rows of one age, which are few."""
    oldest = rows.filter(pl.col(_AGE) == pl.col(_AGE).min().over(by)) if rows.height else rows
    several = oldest[by].is_duplicated()
    decided = oldest.filter(several).sort(*keys, nulls_last=True).unique(by, keep="first", maintain_order=True)
    return pl.concat([oldest.filter(~several), decided])


def _new_ids(first: pl.DataFrame, keys: Sequence[str], known: pl.Series, taken: Taken | None) -> pl.DataFrame:
    """Return an id for each cluster, that of its oldest record, or another where it is or was just now in use."""
    ids = pl.Series(_NEW, [own_id(key) for key in first.select(*keys).iter_rows()], dtype=pl.String)

    def used(ids: pl.Series) -> pl.Series:
        found = known.filter(known.is_in(ids.implode()))
        return ids.is_in((found if taken is None else pl.concat([found, taken(ids)])).implode())

    again = 0
    while (is_used := used(ids)).any():
        again += 1
        others = [own_id(key, again=again) for key in first.filter(is_used).select(*keys).iter_rows()]
        ids = ids.scatter(is_used.arg_true(), pl.Series(others, dtype=pl.String))
    return pl.DataFrame({CLUSTER: first[CLUSTER], _NEW: ids})


def _spread(chosen: pl.DataFrame, cluster: pl.Series) -> pl.Series:
    """Return the id of each record's cluster. A cluster is called by a record's place, so no join is needed."""
    place = pl.zeros(cluster.len(), dtype=pl.UInt32, eager=True)
    place = place.scatter(chosen[CLUSTER], pl.int_range(chosen.height, dtype=pl.UInt32, eager=True))
    return chosen[_NEW].gather(place.gather(cluster))


def _previous(records: pl.DataFrame, entity: pl.Series, owned: pl.DataFrame) -> pl.Series:
    """Return the ids of merged entities that each record has been of; one that is in use again is none."""
    before = records[PREVIOUS].fill_null(pl.Series([[]], dtype=pl.List(pl.String))) if records.height else records[PREVIOUS]
    moved = ((records[ENTITY_ID] != entity) | (before.list.len() > 0)).fill_null(False)
    if not moved.any():
        return before
    rows = records.select(NODE, CLUSTER, ENTITY_ID).with_columns(before.alias(PREVIOUS), entity.alias(_NEW)).filter(moved)
    rows = rows.join(owned.select(ENTITY_ID, pl.col(CLUSTER).alias(_OWNER)), on=ENTITY_ID, how="left", maintain_order="left")
    found = [
        sorted({*previous, *([old] if old is not None and owner == cluster else [])} - {new})
        for cluster, old, previous, new, owner in rows.select(CLUSTER, ENTITY_ID, PREVIOUS, _NEW, _OWNER).iter_rows()
    ]
    now = pl.DataFrame({NODE: rows[NODE], PREVIOUS: pl.Series(found, dtype=pl.List(pl.String))})
    every = pl.DataFrame({NODE: records[NODE], "before": before}).join(now, on=NODE, how="left", maintain_order="left")
    return every.select(pl.coalesce(PREVIOUS, "before")).to_series()
