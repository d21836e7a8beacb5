"""Fuzzy matching of records: normalised values, blocks, candidate pairs, and the confidence of a match.

Pure: frames in, frames out. The match weights come from a `Score`.
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
"""Returns the pairs of records that share a block and reach the required weight, as `PAIRS` of NODEs.

The records have NODE and the columns of `comparable`, and are sorted by their keys.
"""


def compare_all(records: pl.DataFrame, fuzzy: Fuzzy, *, keys: Sequence[str], score: Score) -> pl.DataFrame:
    """Return the matching pairs. Records without a shared block are not compared.

    The order of the two records in a pair is always the same, whatever the other records: a similarity may depend on it.
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
    left, right = comparable(records, fuzzy), comparable(others, fuzzy)
    shared = pl.repeat(False, records.height, dtype=pl.Boolean, eager=True)
    for names in _blocks(fuzzy):
        values = right.select(names).drop_nulls().unique().with_columns(pl.lit(True).alias(NODE))
        shared |= left.select(names).join(values, on=names, how="left", maintain_order="left")[NODE].fill_null(False)
    return shared


def comparable(records: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
    """Return the compared columns as normalised text, named by their position: `c0`, `c1`, …"""
    return records.select(
        _normalise(pl.col(name), fuzzy.how(name), records.schema[name]).alias(f"c{place}")
        for place, name in enumerate(fuzzy.columns)
    )


def block_columns(block: Block, fuzzy: Fuzzy) -> list[str]:
    """Return the names of a block's columns in the result of `comparable`."""
    return [f"c{fuzzy.columns.index(name)}" for name in dict.fromkeys(block.columns)]


def confidence(records: int, *, exact: Sequence[pl.Series], pairs: pl.DataFrame) -> pl.Series:
    """Return the confidence that each record belongs to its entity: 100 if it shares a value, or is alone.

    Otherwise it is the greatest match weight of the record's pairs, at most 99.99.
    """
    both = pl.concat([pairs.select(pl.col(side).alias(NODE), WEIGHT) for side in (LEFT, RIGHT)])
    fuzzy = both.join(pl.DataFrame({NODE: pl.concat(exact).cast(pl.UInt32)}), on=NODE, how="anti")
    best = fuzzy.group_by(NODE).agg(pl.col(WEIGHT).max())
    confidences = pl.repeat(_EXACT, records, dtype=pl.Float64, eager=True)
    if best.height:
        confidences = confidences.scatter(best[NODE], below_exact(best[WEIGHT]))
    return as_confidence(confidences)


def below_exact(weights: pl.Series) -> pl.Series:
    """Return the weights of fuzzy matches, capped below the confidence of an equal value."""
    return weights.clip(upper_bound=_MOST)


def as_confidence(values: pl.Series) -> pl.Series:
    return values.round(2).cast(pl.Decimal(5, 2)).alias(CONFIDENCE)


def _blocks(fuzzy: Fuzzy) -> list[list[str]]:
    return [block_columns(block, fuzzy) for block in fuzzy.block_on]


def _shares(values: pl.DataFrame, names: list[str]) -> pl.Series:
    whole = values.select(pl.all_horizontal(pl.col(names).is_not_null())).to_series()
    return values.select(names).is_duplicated() & whole


def count_pairs(values: pl.DataFrame, fuzzy: Fuzzy) -> int:
    """Return the number of candidate pairs in all blocks. A pair in two blocks counts twice."""
    return sum(_pairs_of(values, names) for names in _blocks(fuzzy))


def _pairs_of(values: pl.DataFrame, names: list[str]) -> int:
    sizes = values.select(names).drop_nulls().group_by(names).len()["len"].cast(pl.Int64)
    return int((sizes * (sizes - 1)).sum()) // 2


def check_pairs(pairs: int, block: Block) -> None:
    """Raise a BuildError if a block has too many candidate pairs to compare in reasonable time."""
    if pairs > MOST_PAIRS:
        raise BuildError(
            f"too many candidate pairs: fuzzy block_on [{', '.join(block.columns)}] yields {pairs:,}",
            next_step=f"The limit is {MOST_PAIRS:,}. Add a more selective column to the block.",
        )


def _normalise(value: pl.Expr, how: How, kind: pl.DataType) -> pl.Expr:
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
