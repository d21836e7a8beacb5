"""Records that may be alike: their values in one spelling, the blocks that they share, and what a weight makes of a record.

Pure: frames in, frames out. The weights themselves come from a `Score`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from headrace.build.entities.names import NODE
from headrace.build.entities.normalise import email_expression
from headrace.errors import BuildError
from headrace.spec.model.fuzzy import Block, Fuzzy, How
from headrace.spec.model.matching import CONFIDENCE, EmailRules

LEFT, RIGHT, WEIGHT = "__left", "__right", "__weight"
PAIRS = pl.Schema({LEFT: pl.UInt32(), RIGHT: pl.UInt32(), WEIGHT: pl.Float64()})
MOST_PAIRS = 100_000_000
_EXACT, _MOST = 100.0, 99.99

Score = Callable[[pl.DataFrame], pl.DataFrame]
"""Returns the pairs of records that share a block and weigh enough: `PAIRS`, where a record is called by its NODE.

The records have NODE and the columns of `comparable`, and stand in the order of their keys.
"""


def compare_all(records: pl.DataFrame, fuzzy: Fuzzy, *, keys: Sequence[str], score: Score) -> pl.DataFrame:
    """Return the pairs of alike records; those that share no block with any other are not even looked at.

    Of two records always the same one stands first, whatever else is there: a similarity may depend on it.
    """
    ordered = records.select(NODE, *keys, *(name for name in fuzzy.columns if name not in keys)).sort(*keys, nulls_last=True)
    values = pl.concat([ordered.select(NODE), comparable(ordered, fuzzy)], how="horizontal")
    shared = [_shares(values, names) for names in _blocks(fuzzy)]
    for block, names in zip(fuzzy.block_on, _blocks(fuzzy), strict=True):
        check_pairs(_pairs_of(values, names), block)
    candidates = values.filter(pl.any_horizontal(shared))
    return score(candidates) if candidates.height else PAIRS.to_frame()


def share_block(records: pl.DataFrame, others: pl.DataFrame, fuzzy: Fuzzy) -> pl.Series:
    """Return for each of the records whether it shares a block with one of the others."""
    mine, theirs = comparable(records, fuzzy), comparable(others, fuzzy)
    found = pl.repeat(False, records.height, dtype=pl.Boolean, eager=True)
    for names in _blocks(fuzzy):
        values = theirs.select(names).drop_nulls().unique().with_columns(pl.lit(True).alias(NODE))
        found |= mine.select(names).join(values, on=names, how="left", maintain_order="left")[NODE].fill_null(False)
    return found


def comparable(records: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
    """Return the columns of the setting as text in one spelling, called by their place: `c0`, `c1`, …"""
    return records.select(
        _in_one_spelling(pl.col(name), fuzzy.how(name), records.schema[name]).alias(f"c{place}")
        for place, name in enumerate(fuzzy.columns)
    )


def block_columns(block: Block, fuzzy: Fuzzy) -> list[str]:
    """Return what `comparable` calls a block's columns."""
    return [f"c{fuzzy.columns.index(name)}" for name in dict.fromkeys(block.columns)]


def confidence(records: int, *, exact: Sequence[pl.Series], pairs: pl.DataFrame) -> pl.Series:
    """Return how sure it is that each record is of its entity: 100 where it shares a value, or is alone.

    Otherwise it is the greatest match weight of its pairs, which is never above 99.99.
    """
    both = pl.concat([pairs.select(pl.col(side).alias(NODE), WEIGHT) for side in (LEFT, RIGHT)])
    fuzzy = both.join(pl.DataFrame({NODE: pl.concat(exact).cast(pl.UInt32)}), on=NODE, how="anti")
    best = fuzzy.group_by(NODE).agg(pl.col(WEIGHT).max())
    found = pl.repeat(_EXACT, records, dtype=pl.Float64, eager=True)
    if best.height:
        found = found.scatter(best[NODE], below_exact(best[WEIGHT]))
    return as_confidence(found)


def below_exact(weights: pl.Series) -> pl.Series:
    """Return the weights of alike records, of which none counts as much as an equal value."""
    return weights.clip(upper_bound=_MOST)


def as_confidence(found: pl.Series) -> pl.Series:
    return found.round(2).cast(pl.Decimal(5, 2)).alias(CONFIDENCE)


def _blocks(fuzzy: Fuzzy) -> list[list[str]]:
    return [block_columns(block, fuzzy) for block in fuzzy.block_on]


def _shares(values: pl.DataFrame, names: list[str]) -> pl.Series:
    whole = values.select(pl.all_horizontal(pl.col(names).is_not_null())).to_series()
    return values.select(names).is_duplicated() & whole


def count_pairs(values: pl.DataFrame, fuzzy: Fuzzy) -> int:
    """Return how many pairs of records the blocks make, counting a pair of two blocks twice."""
    return sum(_pairs_of(values, names) for names in _blocks(fuzzy))


def _pairs_of(values: pl.DataFrame, names: list[str]) -> int:
    sizes = values.select(names).drop_nulls().group_by(names).len()["len"].cast(pl.Int64)
    return int((sizes * (sizes - 1)).sum()) // 2


def check_pairs(pairs: int, block: Block) -> None:
    """Raise a BuildError where a block makes more pairs than can be compared in reasonable time."""
    if pairs > MOST_PAIRS:
        raise BuildError(
            f"fuzzy block_on [{', '.join(block.columns)}] makes {pairs:,} pairs of records to compare",
            next_step=f"At most {MOST_PAIRS:,} are compared. Add a column to the block that tells more records apart.",
        )


def _in_one_spelling(value: pl.Expr, how: How, kind: pl.DataType) -> pl.Expr:
    if how == "date":
        day = value.str.strip_chars().str.to_date("%Y-%m-%d", strict=False) if kind == pl.String else value.cast(pl.Date)
        return day.cast(pl.String)
    if how == "email":
        return email_expression(value, EmailRules())
    if how == "name":
        plain = value.str.normalize("NFKD").str.replace_all(r"\p{M}", "").str.to_lowercase()
        text = plain.str.replace_all(r"\s+", " ").str.strip_chars()
    elif how == "phone":
        text = value.str.replace_all(r"[^0-9]", "")
    else:
        text = value.cast(pl.String)
    return pl.when(text != "").then(text)
