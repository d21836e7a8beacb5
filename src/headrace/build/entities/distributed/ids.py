"""Stable ids on Spark: the rules of `entities/ids.py` with grouping and joins. Pure: frames in, frames out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from headrace.build.entities.distributed.batches import on_batches
from headrace.build.entities.ids import own_id
from headrace.build.entities.names import CLUSTER, NODE, OWN_ID
from headrace.spark.checkpoints import Checkpoints
from headrace.spark.columns import named
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AGE = "__age"
_NEW, _OWNER, _MERGED, _FIRST, _RETAINED, _RECORDS = "__new", "__owner", "__merged", "__first", "__retained", "__records"


@dataclass(frozen=True)
class Chosen:
    """The id of each CLUSTER, and the cluster of each earlier id. `largest` is the size of the largest cluster."""

    ids: DataFrame
    owners: DataFrame
    largest: int


def age_of(oldest_by: str) -> Column:
    """Return the sort key of a record's age: null is youngest, and the record's key breaks ties."""
    return F.struct(named(oldest_by).isNull().alias("is_null"), named(oldest_by).alias("value"), named(NODE).alias(NODE))


def choose_ids(clustered: DataFrame, keys: DataFrame, *, checkpoints: Checkpoints) -> Chosen:
    """Return the id of each cluster.

    `clustered` are records with NODE, CLUSTER, AGE, OWN_ID and their current `entity_id` or null. `keys` are their keys, with
    NODE.
    """
    known = clustered.where(named(ENTITY_ID).isNotNull()).groupBy(ENTITY_ID)
    # The record that an id is derived from anchors it. If that record was removed, the oldest record with the id does.
    anchor = F.max(F.when(F.col(OWN_ID) == F.col(ENTITY_ID), F.col(CLUSTER)))
    oldest = F.min_by(CLUSTER, AGE)
    owners = checkpoints.keep(known.agg(F.coalesce(anchor, oldest).alias(CLUSTER), F.min(AGE).alias(AGE)))
    retained = owners.groupBy(CLUSTER).agg(F.min_by(ENTITY_ID, AGE).alias(_RETAINED))
    first = F.min_by(F.struct(NODE, F.col(OWN_ID).alias(_NEW)), AGE)
    clusters = clustered.groupBy(CLUSTER).agg(first.alias(_FIRST), F.count(F.lit(1)).alias(_RECORDS))
    clusters = checkpoints.keep(clusters.join(retained, CLUSTER, "left"))
    new = clusters.where(F.col(_RETAINED).isNull()).select(CLUSTER, f"{_FIRST}.*")
    chosen = clusters.where(F.col(_RETAINED).isNotNull()).select(CLUSTER, F.col(_RETAINED).alias(_NEW))
    ids = chosen.unionByName(_free_ids(new, owners, keys, checkpoints=checkpoints))
    largest = clusters.agg(F.max(_RECORDS)).first()
    return Chosen(ids, owners, int(largest[0] or 0) if largest else 0)


def _free_ids(new: DataFrame, owners: DataFrame, keys: DataFrame, *, checkpoints: Checkpoints) -> DataFrame:
    """Return the new ids. A cluster whose id is in use gets another one, which is rare."""
    in_use = owners.select(F.col(ENTITY_ID).alias(_NEW))
    free, again = new.join(in_use, _NEW, "left_anti").select(CLUSTER, _NEW), 0
    used = checkpoints.keep(new.join(in_use, _NEW, "left_semi").select(CLUSTER, NODE))
    while not used.isEmpty():
        again += 1
        names = [name for name in keys.columns if name != NODE]
        first = used.join(keys, NODE)
        others = first.select(CLUSTER, NODE, _other_ids(names, again=again)(F.struct(*map(named, names)))[_NEW].alias(_NEW))
        free = free.unionByName(others.join(in_use, _NEW, "left_anti").select(CLUSTER, _NEW))
        used = checkpoints.keep(others.join(in_use, _NEW, "left_semi").select(CLUSTER, NODE))
    return free


def _other_ids(keys: Sequence[str], *, again: int) -> Callable[[Column], Column]:
    def make(batch: pl.DataFrame) -> pl.DataFrame:
        ids = [own_id(key, again=again) for key in batch.select(keys).iter_rows()]
        return pl.DataFrame({_NEW: pl.Series(ids, dtype=pl.String)})

    return on_batches(make, StructType([StructField(_NEW, StringType())]))


def with_ids(clustered: DataFrame, chosen: Chosen) -> DataFrame:
    """Return NODE, `entity_id` and `previous_entity_ids` of each record: the ids of entities merged into its entity."""
    named_new = clustered.select(NODE, CLUSTER, ENTITY_ID, PREVIOUS).join(chosen.ids, CLUSTER)
    moved = named_new.where(F.col(ENTITY_ID) != F.col(_NEW)).select(NODE, CLUSTER, ENTITY_ID)
    owners = chosen.owners.select(ENTITY_ID, F.col(CLUSTER).alias(_OWNER))
    merged = moved.join(owners, ENTITY_ID).where(F.col(_OWNER) == F.col(CLUSTER))
    merged = merged.select(NODE, F.array(ENTITY_ID).alias(_MERGED))
    before = F.concat(*(F.coalesce(F.col(name), F.array().cast("array<string>")) for name in (PREVIOUS, _MERGED)))
    previous = F.array_sort(F.array_remove(F.array_distinct(before), F.col(_NEW)))
    return named_new.join(merged, NODE, "left").select(NODE, F.col(_NEW).alias(ENTITY_ID), previous.alias(PREVIOUS))
