"""Connected components on Spark, by alternating large-star and small-star operations (Kiveris et al., 2014).

An edge is a pair of nodes, `CHILD` greater than `PARENT`. A round first points the greater neighbours of every node to its
least neighbour (large-star), then the lesser ones and the node itself (small-star). The result is one star for each component.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import BuildError
from headrace.spark.checkpoints import Checkpoints

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHILD, PARENT = "__child", "__parent"
_NODE, _OTHER, _LEAST, _MOVED = "__from", "__to", "__least", "__moved"

MOST_ROUNDS = 100
"""A safety limit that no table should reach: a shuffled chain of 20,000 nodes took 12 rounds."""

_LOG = logging.getLogger(__name__)


def connected_components(edges: DataFrame, *, checkpoints: Checkpoints) -> DataFrame:
    """Return each node that is not the least of its component as CHILD, and the least node as PARENT.

    Each round is checkpointed, and the previous one released. Raises BuildError after `MOST_ROUNDS`.
    """
    before: DataFrame | None = None
    for number in range(1, MOST_ROUNDS + 1):
        stars = checkpoints.keep(_round(edges if before is None else before))
        if before is not None:
            checkpoints.release(before)
        moved = stars.where(_MOVED).count()
        _LOG.info("Connected components: round %d moved %d edges", number, moved)
        if not moved:
            return stars.select(CHILD, PARENT)
        before = stars
    raise BuildError(
        f"connected components of the entities did not converge in {MOST_ROUNDS} rounds",
        next_step="Nothing was changed. Please report this bug, with the lines that the build logged for each round.",
    )


def _round(edges: DataFrame) -> DataFrame:
    """Return the edges after both operations; `_MOVED` marks the changed edges.

    An edge moves in the first operation if its lesser node has a lesser neighbour, and in the second if its greater node has
    two parents. If no edge moves, every parent is a root and every child has one parent.
    """
    child, parent = F.col(CHILD), F.col(PARENT)
    both = edges.select(F.explode(F.array(_ends(child, parent), _ends(parent, child))).alias("edge")).select("edge.*")
    least = F.least(_NODE, F.min(_OTHER).over(Window.partitionBy(_NODE)))
    large = both.withColumn(_LEAST, least).where(F.col(_OTHER) > F.col(_NODE))
    large = large.select(F.col(_OTHER).alias(CHILD), F.col(_LEAST).alias(PARENT), (F.col(_LEAST) != F.col(_NODE)).alias(_MOVED))
    small = large.withColumn(_LEAST, F.min(PARENT).over(Window.partitionBy(CHILD)))
    splits = parent != F.col(_LEAST)
    pointed = F.array(
        F.struct(child.alias(CHILD), F.col(_LEAST).alias(PARENT), (F.col(_MOVED) | splits).alias(_MOVED)),
        F.when(splits, F.struct(parent.alias(CHILD), F.col(_LEAST).alias(PARENT), F.lit(True).alias(_MOVED))),
    )
    edges_after = small.select(F.explode(F.array_compact(pointed)).alias("edge")).select("edge.*")
    return edges_after.groupBy(CHILD, PARENT).agg(F.max(_MOVED).alias(_MOVED))


def _ends(node: Column, other: Column) -> Column:
    return F.struct(node.alias(_NODE), other.alias(_OTHER))
