"""Train the weights of `fuzzy` from the records without labels, with Splink's expectation-maximisation.

The agreement of random record pairs estimates u. The agreement of likely matches within a block on the other columns estimates
m. Weights that can't be estimated stay fixed. Training is deterministic for the same records and seed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.build.entities.alike import block_columns, comparable, count_pairs
from headrace.build.entities.ids import own_id
from headrace.build.entities.levels import Level
from headrace.build.entities.names import NODE
from headrace.build.entities.scoring import number_records
from headrace.build.entities.splink_duckdb import duckdb_linker
from headrace.build.entities.splink_model import gamma
from headrace.build.entities.weights import LEAST_RECORDS, Weights, fixed_weights
from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.spec.model.fuzzy import Block, Fuzzy

if TYPE_CHECKING:
    from splink import Linker

MOST_PAIRS = 2_000_000
MOST_RECORDS = 1_000_000
"""The maximum number of pairs and records for training: more need time and memory, and hardly change the estimates."""
_DRAWN_BITS = 64
_RANDOM_PAIRS = 2_000_000
_LEAST_COMPARED = 2
_THREADS = 1
"""With one thread DuckDB sums in a fixed order, so the same records yield the same sums."""
_LEAST_CHANCE, _MOST_CHANCE = 1e-9, 0.1
_ROUNDS = 100
_DIGITS = 6
_LOG = logging.getLogger(__name__)


def choose_weights(records: pl.DataFrame, fuzzy: Fuzzy, *, keys: Sequence[str], version: int) -> TrainedWeights:
    """Train a table's weights on its records, for the ledger entry of a refresh.

    Return the fixed weights if there are too few records to train on.
    """
    ordered = records.sort(*keys, nulls_last=True)
    values = comparable(ordered, fuzzy).with_row_index(NODE)
    if is_too_large(values.height, count_pairs(values, fuzzy)):
        halvings = pl.Series([halvings_of(own_id(key), fuzzy.seed) for key in ordered.select(keys).iter_rows()])
        values = sample_records(values, halvings, fuzzy)
    return weights_of_sample(values, fuzzy, records=records.height, version=version)


def weights_of_sample(values: pl.DataFrame, fuzzy: Fuzzy, *, records: int, version: int) -> TrainedWeights:
    """Train a table's weights on a sample of its `records` records, for the table's ledger entry."""
    weights, trained = train_weights(number_records(values), fuzzy)
    return weights.store(version=version, records=records, trained=trained)


def is_too_large(records: int, pairs: int) -> bool:
    """Return whether a sample must be halved again before training."""
    return records > MOST_RECORDS or pairs > MOST_PAIRS


def halvings_of(own: str, seed: int) -> int:
    """Return how many times a record stays in the sample when it is halved, from the record's own id.

    The result depends only on the key and the seed, so a build on Spark draws the same sample as one in this process.
    """
    drawn = int.from_bytes(hashlib.blake2b(own.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest(), "big")
    return _DRAWN_BITS - drawn.bit_length()


def sample_records(values: pl.DataFrame, halvings: pl.Series, fuzzy: Fuzzy) -> pl.DataFrame:
    """Return the largest sample that is small enough for training."""
    halved, sample = 0, values
    while is_too_large(sample.height, count_pairs(sample, fuzzy)):
        halved += 1
        sample = values.filter(halvings >= halved)
    return sample


def train_weights(records: pl.DataFrame, fuzzy: Fuzzy) -> tuple[Weights, tuple[str, ...]]:
    """Return the trained weights, and the columns whose levels were trained.

    The records are sorted by key and identified by position. A column whose levels can't be estimated keeps the fixed ones. All
    columns do if fewer than two can be estimated, or if a tenth of all pairs would be matches, which is implausible.
    """
    fixed = fixed_weights(fuzzy)
    if records.height < LEAST_RECORDS:
        return fixed, ()
    random_u = _estimate_u(records, fuzzy, fixed)
    start = Weights(fixed.chance, {column: _with(levels, u=random_u[column]) for column, levels in fixed.levels.items()})
    estimates = [estimate for block in fuzzy.block_on if (estimate := _estimate_m(records, fuzzy, start, block))]
    levels = {
        column: _combine(start.levels[column], [estimate[column] for estimate in estimates if column in estimate])
        for column in start.levels
    }
    trained = {column: combined for column, combined in levels.items() if combined and random_u[column]}
    if len(trained) < _LEAST_COMPARED:
        return fixed, ()
    weights = replace(fixed, levels=MappingProxyType({**fixed.levels, **trained}))
    chance = _estimate_chance(records, fuzzy, weights)
    return (replace(weights, chance=chance), tuple(trained)) if chance < _MOST_CHANCE else (fixed, ())


def _estimate_u(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> Mapping[str, tuple[float, ...] | None]:
    """Return the probability of each level for two random records; None for a column with an unobserved level."""
    with duckdb_linker(records, fuzzy, weights, threads=_THREADS) as (linker, _):
        linker.training.estimate_u_using_random_sampling(max_pairs=_RANDOM_PAIRS, seed=fuzzy.seed)
        return _probabilities(
            linker, fuzzy, "u_probability", {column: _us(levels) for column, levels in weights.levels.items()}
        )


def _estimate_m(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights, block: Block) -> Mapping[str, tuple[float, ...]]:
    """Return the probability of each level for two records of one entity, estimated for the columns outside of a block.

    The result is empty if the block leaves too few columns to compare, or no two records share it.
    """
    from splink import block_on
    from splink.internals.exceptions import EMTrainingException

    others = [comparison.column for comparison in fuzzy.compare if comparison.column not in block.columns]
    if len(others) < _LEAST_COMPARED:
        return {}
    with duckdb_linker(records, fuzzy, weights, threads=_THREADS) as (linker, _):
        try:
            linker.training.estimate_parameters_using_expectation_maximisation(
                block_on(*block_columns(block, fuzzy)), estimate_without_term_frequencies=True
            )
        except EMTrainingException as error:
            _LOG.info("Block [%s] is not used for training: %s", ", ".join(block.columns), str(error).splitlines()[0])
            return {}
        start = {column: _ms(levels) for column, levels in weights.levels.items()}
        probabilities = _probabilities(linker, fuzzy, "m_probability", start)
    return {column: values for column in others if (values := probabilities[column])}


def _probabilities(
    linker: Linker, fuzzy: Fuzzy, name: str, start: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...] | None]:
    """Return m or u of each column's levels; None if a level was not observed, or training did not change them."""
    model: Mapping[str, Any] = linker.misc.save_model_to_json()
    probabilities: dict[str, tuple[float, ...] | None] = {}
    for result, comparison in zip(model["comparisons"], fuzzy.compare, strict=True):
        levels = [level for level in result["comparison_levels"] if not level.get("is_null_level")]
        values = tuple(level.get(name) for level in levels)
        observed = all(isinstance(value, float) and value > 0 for value in values)
        probabilities[comparison.column] = values if observed and values != start[comparison.column] else None
    return probabilities


def _combine(levels: tuple[Level, ...], estimates: list[tuple[float, ...]]) -> tuple[Level, ...] | None:
    """Return levels with the mean of the blocks' estimates; None without estimates, or if equality would lower the weight."""
    if not estimates:
        return None
    means = [sum(values) / len(values) for values in zip(*estimates, strict=True)]
    ordered = _in_order([(m, level.u) for m, level in zip(means, levels, strict=True)])
    combined = [replace(level, m=_rounded(m), u=_rounded(u)) for level, (m, u) in zip(levels, ordered, strict=True)]
    return tuple(combined) if combined[0].m > combined[0].u and combined[-1].m < combined[-1].u else None


def _ms(levels: tuple[Level, ...]) -> tuple[float, ...]:
    return tuple(level.m for level in levels)


def _us(levels: tuple[Level, ...]) -> tuple[float, ...]:
    return tuple(level.u for level in levels)


def _with(levels: tuple[Level, ...], *, u: tuple[float, ...] | None) -> tuple[Level, ...]:
    return levels if u is None else tuple(replace(level, u=value) for level, value in zip(levels, u, strict=True))


def _in_order(probabilities: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return m and u with descending weights: adjacent levels in the wrong order get their pooled weight.

    If a few names are common, similar names can be rarer among different entities than equal ones. Equal values must still not
    weigh less, and a backend relies on weights that never decrease with similarity.
    """
    pools: list[list[tuple[float, float]]] = []
    for level in probabilities:
        pools.append([level])
        while len(pools) > 1 and _factor(pools[-2]) < _factor(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return [(_factor(pool) * u, u) for pool in pools for _, u in pool]


def _factor(pool: list[tuple[float, float]]) -> float:
    return sum(m for m, _ in pool) / sum(u for _, u in pool)


def _rounded(probability: float) -> float:
    """Round a probability to a few significant digits: the last bits of a sum may differ between machines."""
    return float(f"{probability:.{_DIGITS}g}")


def _estimate_chance(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> float:
    """Estimate the probability that two random records belong to one entity, from the expected matches in all blocks."""
    names = [gamma(comparison.column, fuzzy) for comparison in fuzzy.compare]
    with duckdb_linker(records, fuzzy, weights, threads=_THREADS) as (linker, connection):
        predicted = connection.table(linker.inference.predict(warning_mode="never").physical_name)
        patterns = predicted.aggregate(f"{', '.join(names)}, count(*) AS pairs").pl().sort(names)
    added = pl.sum_horizontal(
        pl.col(gamma(comparison.column, fuzzy)).replace_strict(weights.by_gamma(comparison.column), return_dtype=pl.Float64)
        for comparison in fuzzy.compare
    )
    factors = patterns.select((2.0**added).alias("factor"), "pairs")
    every = records.height * (records.height - 1) / 2
    chance = weights.chance
    for _ in range(_ROUNDS):
        odds = chance / (1 - chance) * pl.col("factor")
        expected = factors.select((pl.col("pairs") * odds / (1 + odds)).sum()).item()
        before, chance = chance, min(max(expected / every, _LEAST_CHANCE), _MOST_CHANCE)
        if abs(chance - before) < 1e-6 * before:
            break
    return _rounded(chance)
