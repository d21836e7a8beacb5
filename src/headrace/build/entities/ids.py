"""Stable ids: a growing entity keeps its id, a merged entity keeps the older id, and one part of a split entity keeps the
id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import polars as pl

from headrace.build.entities.names import CLUSTER, NODE
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS

_AGE, _NEW, _OWNER = "__age", "__new", "__owner"

Taken = Callable[[pl.Series], pl.Series]
"""Returns the given ids that belong to entities outside of the resolved records."""


def own_id(key: Sequence[object], *, again: int = 0) -> str:
    """Return the id for an entity that starts with this record: a 128-bit digest of its key.

    `again` yields another id, for a record that was removed and added again while its first id is still in use.
    """
    text = repr((*key, again) if again else tuple(key))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def stable_ids(records: pl.DataFrame, keys: Sequence[str], *, oldest_by: str, taken: Taken | None = None) -> pl.DataFrame:
    """Return the records with the id of their cluster, and the ids of entities that were merged into it.

    An id belongs to the cluster with the record that it is derived from, or, if that record was removed, with the oldest record
    that has the id. A cluster keeps its oldest id. A cluster without an id gets the id of its oldest record.
    """
    age = pl.col(oldest_by).rank("dense").fill_null(records.height + 1).cast(pl.UInt32).alias(_AGE)
    aged = records.select(NODE, CLUSTER, ENTITY_ID, *keys, age)
    owned = _owners(aged, keys)
    retained = _first(owned, CLUSTER, keys)
    chosen = retained.select(CLUSTER, pl.col(ENTITY_ID).alias(_NEW))
    without = aged.join(chosen, on=CLUSTER, how="anti") if chosen.height else aged
    chosen = pl.concat([chosen, _new_ids(_first(without, CLUSTER, keys), keys, owned[ENTITY_ID], taken)])
    entity = _spread(chosen, records[CLUSTER])
    return records.with_columns(_previous(records, entity, owned).alias(PREVIOUS), entity.alias(ENTITY_ID))


def _owners(aged: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return, for each existing id, its oldest record, with the cluster that the id belongs to."""
    known = aged.filter(pl.col(ENTITY_ID).is_not_null())
    ids = _first(known, ENTITY_ID, keys)
    split = known.filter(pl.col(CLUSTER).n_unique().over(ENTITY_ID) > 1) if known.height else known
    if split.is_empty():
        return ids
    own = pl.Series(_NEW, [own_id(key) for key in split.select(*keys).iter_rows()], dtype=pl.String)
    anchors = split.with_columns(own).filter(pl.col(_NEW) == pl.col(ENTITY_ID))
    owners = ids.join(anchors.select(ENTITY_ID, pl.col(CLUSTER).alias(_OWNER)), on=ENTITY_ID, how="left")
    return owners.with_columns(pl.coalesce(_OWNER, CLUSTER).alias(CLUSTER)).drop(_OWNER)


def _first(rows: pl.DataFrame, by: str, keys: Sequence[str]) -> pl.DataFrame:
    """Return the oldest row of each value of a column. Keys break ties, which are rare."""
    oldest = rows.filter(pl.col(_AGE) == pl.col(_AGE).min().over(by)) if rows.height else rows
    several = oldest[by].is_duplicated()
    decided = oldest.filter(several).sort(*keys, nulls_last=True).unique(by, keep="first", maintain_order=True)
    return pl.concat([oldest.filter(~several), decided])


def _new_ids(first: pl.DataFrame, keys: Sequence[str], known: pl.Series, taken: Taken | None) -> pl.DataFrame:
    """Return an id for each cluster: the id of its oldest record, or another one if that is already in use."""
    ids = pl.Series(_NEW, [own_id(key) for key in first.select(*keys).iter_rows()], dtype=pl.String)

    def used(ids: pl.Series) -> pl.Series:
        in_use = known.filter(known.is_in(ids.implode()))
        return ids.is_in((in_use if taken is None else pl.concat([in_use, taken(ids)])).implode())

    again = 0
    while (is_used := used(ids)).any():
        again += 1
        others = [own_id(key, again=again) for key in first.filter(is_used).select(*keys).iter_rows()]
        ids = ids.scatter(is_used.arg_true(), pl.Series(others, dtype=pl.String))
    return pl.DataFrame({CLUSTER: first[CLUSTER], _NEW: ids})


def _spread(chosen: pl.DataFrame, cluster: pl.Series) -> pl.Series:
    """Return the id of each record's cluster. A cluster is identified by a record's position, so no join is needed."""
    place = pl.zeros(cluster.len(), dtype=pl.UInt32, eager=True)
    place = place.scatter(chosen[CLUSTER], pl.int_range(chosen.height, dtype=pl.UInt32, eager=True))
    return chosen[_NEW].gather(place.gather(cluster))


def _previous(records: pl.DataFrame, entity: pl.Series, owned: pl.DataFrame) -> pl.Series:
    """Return the previous ids of each record: the ids of merged entities that it belonged to, without its current id."""
    before = records[PREVIOUS].fill_null(pl.Series([[]], dtype=pl.List(pl.String))) if records.height else records[PREVIOUS]
    moved = ((records[ENTITY_ID] != entity) | (before.list.len() > 0)).fill_null(False)
    if not moved.any():
        return before
    rows = records.select(NODE, CLUSTER, ENTITY_ID).with_columns(before.alias(PREVIOUS), entity.alias(_NEW)).filter(moved)
    rows = rows.join(owned.select(ENTITY_ID, pl.col(CLUSTER).alias(_OWNER)), on=ENTITY_ID, how="left", maintain_order="left")
    merged = [
        sorted({*previous, *([old] if old is not None and owner == cluster else [])} - {new})
        for cluster, old, previous, new, owner in rows.select(CLUSTER, ENTITY_ID, PREVIOUS, _NEW, _OWNER).iter_rows()
    ]
    now = pl.DataFrame({NODE: rows[NODE], PREVIOUS: pl.Series(merged, dtype=pl.List(pl.String))})
    every = pl.DataFrame({NODE: records[NODE], "before": before}).join(now, on=NODE, how="left", maintain_order="left")
    return every.select(pl.coalesce(PREVIOUS, "before")).to_series()
