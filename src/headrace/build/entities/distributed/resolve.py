"""Resolve records to entities on Spark, in the three steps of `entities/resolve.py`: edges, clusters, stable ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.entities.distributed.components import CHILD, PARENT, connected_components
from headrace.build.entities.distributed.ids import AGE, age_of, choose_ids, with_ids
from headrace.build.entities.distributed.links import edges_of, link_records, unused_of
from headrace.build.entities.distributed.pairs import confidence_of
from headrace.build.entities.names import CLUSTER, NODE, OWN_ID
from headrace.build.entities.resolve import Rules
from headrace.spark.checkpoints import Checkpoints
from headrace.spark.columns import named
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ResolvedRecords:
    """All records of a table with their entities, and the number of records in the largest entity."""

    rows: DataFrame
    largest_entity: int


def resolve_on_spark(records: DataFrame, rules: Rules, *, pairs: DataFrame | None, checkpoints: Checkpoints) -> ResolvedRecords:
    """Return the records with their entities. `records` is the checkpointed result of `distributed.records`.

    `pairs` are the fuzzy matching pairs of `distributed.pairs`, or None if no records were compared. The rows are computed when
    they are written, from checkpointed frames.
    """
    links = checkpoints.keep(link_records(records, rules.matches))
    exact = edges_of(links)
    edges = exact if pairs is None else exact.unionByName(pairs.select(CHILD, PARENT))
    labels = connected_components(edges, checkpoints=checkpoints).withColumnsRenamed({CHILD: NODE, PARENT: CLUSTER})
    narrow = records.select(NODE, OWN_ID, ENTITY_ID, PREVIOUS, age_of(rules.oldest_by).alias(AGE)).join(labels, NODE, "left")
    clustered = checkpoints.keep(narrow.withColumn(CLUSTER, F.coalesce(CLUSTER, NODE)))
    keys = records.select(NODE, *map(named, rules.keys))
    chosen = choose_ids(clustered, keys, checkpoints=checkpoints)
    resolved = with_ids(clustered, chosen).join(unused_of(links, rules.matches), NODE, "left")
    unused = F.coalesce(F.col(UNUSED), F.array().cast("array<string>")).alias(UNUSED)
    sure = F.lit(100).cast("decimal(5, 2)")
    if pairs is not None:
        resolved = resolved.join(confidence_of(pairs, exact=exact), NODE, "left")
        sure = F.coalesce(F.col(CONFIDENCE), sure)
    resolved = resolved.select(NODE, ENTITY_ID, PREVIOUS, unused, sure.alias(CONFIDENCE))
    rows = records.drop(OWN_ID, ENTITY_ID, PREVIOUS).join(resolved, NODE).drop(NODE)
    return ResolvedRecords(rows, chosen.largest)
