"""Ids that last: an entity keeps its id while it grows; when two merge the older stays; when one splits, one part has it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import polars as pl

from headrace.layers.entities.names import CLUSTER, NODE
from headrace.spec.matching import ENTITY_ID, PREVIOUS

_OLD, _AGE, _OWNER, _NEW, _ANCHOR = "__old", "__age", "__owner", "__new", "__anchor"


def own_id(key: Sequence[object], *, again: int = 0) -> str:
    """Gives back the id of the entity that a record is the first of: 128 bits of a digest of its key.

    `again` makes another one, for a record that went and came back while its first id is still in use.
    """
    text = json.dumps([*key, *([again] if again else [])], default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stable_ids(records: pl.DataFrame, keys: Sequence[str], *, oldest_by: str, taken: pl.Series | None = None) -> pl.DataFrame:
    """Gives back the records with the id of their cluster, and with the ids that it had before it was merged into an older one.

    An id belongs to the cluster with the record that gave it, or, where that one is gone, the oldest that has it. Of the ids
    that belong to a cluster the oldest stays. A cluster without one gets that of its oldest record.
    """
    aged = records.rename({ENTITY_ID: _OLD}).sort(oldest_by, *keys, nulls_last=True).with_row_index(_AGE)
    owned = _owners(aged, keys)
    chosen = owned.sort(_AGE).group_by(CLUSTER, maintain_order=True).agg(pl.col(_OLD).first().alias(_NEW))
    chosen = pl.concat([chosen, _new_ids(aged, keys, chosen, taken)])
    result = aged.join(chosen, on=CLUSTER, how="left").join(
        owned.select(_OLD, pl.col(CLUSTER).alias(_OWNER)), on=_OLD, how="left"
    )
    was_merged = (pl.col(_OLD) != pl.col(_NEW)) & (pl.col(_OWNER) == pl.col(CLUSTER))
    before = pl.col(PREVIOUS).fill_null([])
    merged = pl.when(was_merged).then(pl.concat_list(before, pl.col(_OLD))).otherwise(before)
    result = result.with_columns(
        pl.col(_NEW).alias(ENTITY_ID), merged.list.set_difference(pl.concat_list(_NEW)).list.sort().alias(PREVIOUS)
    )
    return result.sort(NODE).drop(_OLD, _AGE, _OWNER, _NEW)


def _owners(aged: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Gives back, for each id that is there, the cluster that it belongs to and its age: that of its oldest record."""
    known = aged.filter(pl.col(_OLD).is_not_null())
    ids = known.group_by(_OLD).agg(
        pl.col(_AGE).min(), pl.col(CLUSTER).sort_by(_AGE).first(), (pl.col(CLUSTER).n_unique() > 1).alias("is_split")
    )
    split = known.join(ids.filter("is_split").select(_OLD), on=_OLD, how="semi")
    own = pl.Series(_ANCHOR, [own_id(key) for key in split.select(*keys).iter_rows()], dtype=pl.String)
    anchors = split.with_columns(own).filter(pl.col(_ANCHOR) == pl.col(_OLD)).select(_OLD, pl.col(CLUSTER).alias(_ANCHOR))
    found = ids.join(anchors, on=_OLD, how="left")
    return found.select(_OLD, _AGE, pl.coalesce(_ANCHOR, CLUSTER).alias(CLUSTER))


def _new_ids(aged: pl.DataFrame, keys: Sequence[str], chosen: pl.DataFrame, taken: pl.Series | None) -> pl.DataFrame:
    """Gives back an id for each cluster that owns none: that of its oldest record, or another where it is in use."""
    without = aged.join(chosen, on=CLUSTER, how="anti")
    first = without.unique(CLUSTER, keep="first", maintain_order=True)
    in_use = set(chosen[_NEW].to_list()) | set(taken.to_list() if taken is not None else ())
    found = []
    for key in first.select(*keys).iter_rows():
        candidate, again = own_id(key), 0
        while candidate in in_use:
            again += 1
            candidate = own_id(key, again=again)
        found.append(candidate)
    return pl.DataFrame({CLUSTER: first[CLUSTER], _NEW: pl.Series(found, dtype=pl.String)})
