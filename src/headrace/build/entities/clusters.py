"""Connected components of a graph."""

from __future__ import annotations

import polars as pl


def connected_components(left: pl.Series, right: pl.Series, *, nodes: int) -> pl.Series:
    """Return, for each of the nodes 0 to `nodes` - 1, the least node in its component.

    Each round attaches every tree to the least root that an edge leads to, and flattens it. Only edges between different trees
    remain, so that each round costs less than the previous one, and a chain takes few rounds.
    """
    root = pl.int_range(nodes, dtype=pl.UInt32, eager=True).alias("root")
    edges = pl.DataFrame({"left": left.cast(pl.UInt32), "right": right.cast(pl.UInt32)})
    while True:
        edges = edges.select(pl.Series("left", root.gather(edges["left"])), pl.Series("right", root.gather(edges["right"])))
        edges = edges.filter(pl.col("left") != pl.col("right"))
        if edges.is_empty():
            return root
        attached = (
            edges.select(pl.max_horizontal("left", "right").alias("node"), pl.min_horizontal("left", "right").alias("under"))
            .group_by("node")
            .agg(pl.col("under").min())
        )
        root = root.scatter(attached["node"], attached["under"])
        root = _flatten(root)


def _flatten(root: pl.Series) -> pl.Series:
    """Return the root of every node, following parents to the end."""
    while True:
        further = root.gather(root)
        if further.equals(root):
            return root
        root = further
