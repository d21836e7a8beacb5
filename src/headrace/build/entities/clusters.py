"""Connected components: which nodes hang together, however long the way between them is."""

from __future__ import annotations

import polars as pl


def connected_components(left: pl.Series, right: pl.Series, *, nodes: int) -> pl.Series:
    """Return, for each of the nodes 0 to `nodes` - 1, the least node that it is connected to by the edges.

    In each round every tree is hung under the least root that an edge leads to, and is then made flat. Only edges between
    different trees go on, so that a round costs less than the one before, and a chain takes few.
    """
    root = pl.int_range(nodes, dtype=pl.UInt32, eager=True).alias("root")
    edges = pl.DataFrame({"left": left.cast(pl.UInt32), "right": right.cast(pl.UInt32)})
    while True:
        edges = edges.select(pl.Series("left", root.gather(edges["left"])), pl.Series("right", root.gather(edges["right"])))
        edges = edges.filter(pl.col("left") != pl.col("right"))
        if edges.is_empty():
            return root
        hung = (
            edges.select(pl.max_horizontal("left", "right").alias("node"), pl.min_horizontal("left", "right").alias("under"))
            .group_by("node")
            .agg(pl.col("under").min())
        )
        root = root.scatter(hung["node"], hung["under"])
        root = _flatten(root)


def _flatten(root: pl.Series) -> pl.Series:
    """Return the root of every node, at the end of however long a way."""
    while True:
        further = root.gather(root)
        if further.equals(root):
            return root
        root = further
