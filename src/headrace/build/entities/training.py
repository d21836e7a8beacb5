"""Train the weights of `fuzzy` from the records themselves: no labels are needed (expectation-maximisation, by Splink).

How often two random records agree on a value gives u. Among records that share a block, how often those that look like one
entity agree on the other columns gives m. What the records can't tell stays fixed. The same records and seed give the same
weights.
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
"""How many pairs and records weights are trained of: more cost time and memory of one process, and change estimates little."""
_DRAWN_BITS = 64
_RANDOM_PAIRS = 2_000_000
_LEAST_COMPARED = 2
_THREADS = 1
"""DuckDB then adds up in one order: the same records give the same sums."""
_LEAST_CHANCE, _MOST_CHANCE = 1e-9, 0.1
_ROUNDS = 100
_DIGITS = 6
_LOG = logging.getLogger(__name__)


def choose_weights(records: pl.DataFrame, fuzzy: Fuzzy, *, keys: Sequence[str], version: int) -> TrainedWeights:
    """Return the weights of a table that is refreshed, trained of all its records, as its ledger keeps them.

    They are the fixed ones where the records are too few to learn from.
    """
    ordered = records.sort(*keys, nulls_last=True)
    values = comparable(ordered, fuzzy).with_row_index(NODE)
    if is_too_large(values.height, count_pairs(values, fuzzy)):
        halvings = pl.Series([halvings_of(own_id(key), fuzzy.seed) for key in ordered.select(keys).iter_rows()])
        values = sample_records(values, halvings, fuzzy)
    return weights_of_sample(values, fuzzy, records=records.height, version=version)


def weights_of_sample(values: pl.DataFrame, fuzzy: Fuzzy, *, records: int, version: int) -> TrainedWeights:
    """Return the weights of a table with so many records, trained of a sample of them, as its ledger keeps them."""
    weights, trained = train_weights(number_records(values), fuzzy)
    return weights.store(version=version, records=records, trained=trained)


def is_too_large(records: int, pairs: int) -> bool:
    """Return whether a sample has to be halved again before weights are trained of it."""
    return records > MOST_RECORDS or pairs > MOST_PAIRS


def halvings_of(own: str, seed: int) -> int:
    """Return how often a record stays in the sample when it is halved, given the id that its key makes.

    It depends on nothing but the key and the seed, so every form of a build draws the same sample.
    """
    drawn = int.from_bytes(hashlib.blake2b(own.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest(), "big")
    return _DRAWN_BITS - drawn.bit_length()


def sample_records(values: pl.DataFrame, halvings: pl.Series, fuzzy: Fuzzy) -> pl.DataFrame:
    """Return the records of the largest sample that is not too large."""
    halved, sample = 0, values
    while is_too_large(sample.height, count_pairs(sample, fuzzy)):
        halved += 1
        sample = values.filter(halvings >= halved)
    return sample


def train_weights(records: pl.DataFrame, fuzzy: Fuzzy) -> tuple[Weights, tuple[str, ...]]:
    """Return the weights that fit the records best, and the columns whose levels were trained.

    The records are in the order of their keys, and are called by their place. A column whose levels can't be estimated
    keeps the fixed ones. All columns do where fewer than two can be estimated, or where a tenth of all pairs would be matches,
    which no table of records has.
    """
    fixed = fixed_weights(fuzzy)
    if records.height < LEAST_RECORDS:
        return fixed, ()
    random_u = _estimate_u(records, fuzzy, fixed)
    start = Weights(fixed.chance, {column: _with(levels, u=random_u[column]) for column, levels in fixed.levels.items()})
    estimates = [found for block in fuzzy.block_on if (found := _estimate_m(records, fuzzy, start, block))]
    levels = {
        column: _combine(start.levels[column], [each[column] for each in estimates if column in each])
        for column in start.levels
    }
    trained = {column: found for column, found in levels.items() if found and random_u[column]}
    if len(trained) < _LEAST_COMPARED:
        return fixed, ()
    weights = replace(fixed, levels=MappingProxyType({**fixed.levels, **trained}))
    chance = _estimate_chance(records, fuzzy, weights)
    return (replace(weights, chance=chance), tuple(trained)) if chance < _MOST_CHANCE else (fixed, ())


def _estimate_u(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> Mapping[str, tuple[float, ...] | None]:
    """Return how likely each level of a column is for two random records; None for a column with a level that none has."""
    with duckdb_linker(records, fuzzy, weights, threads=_THREADS) as (linker, _):
        linker.training.estimate_u_using_random_sampling(max_pairs=_RANDOM_PAIRS, seed=fuzzy.seed)
        return _probabilities(linker, fuzzy, "u_probability", {column: _us(found) for column, found in weights.levels.items()})


def _estimate_m(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights, block: Block) -> Mapping[str, tuple[float, ...]]:
    """Return how likely each level is for two records of one entity, as the pairs of a block tell it of the other columns.

    It is empty where the block leaves too little to compare, or no two records share it.
    """
    from splink import block_on
    from splink.internals.exceptions import EMTrainingException

    others = [each.column for each in fuzzy.compare if each.column not in block.columns]
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
        found = _probabilities(linker, fuzzy, "m_probability", {column: _ms(found) for column, found in weights.levels.items()})
    return {column: each for column in others if (each := found[column])}


def _probabilities(
    linker: Linker, fuzzy: Fuzzy, name: str, start: Mapping[str, tuple[float, ...]]
) -> dict[str, tuple[float, ...] | None]:
    """Return m or u of the levels of each column; None where a level was not observed, or all are as they were at the start."""
    model: Mapping[str, Any] = linker.misc.save_model_to_json()
    found: dict[str, tuple[float, ...] | None] = {}
    for comparison, each in zip(model["comparisons"], fuzzy.compare, strict=True):
        levels = [level for level in comparison["comparison_levels"] if not level.get("is_null_level")]
        values = tuple(level.get(name) for level in levels)
        observed = all(isinstance(value, float) and value > 0 for value in values)
        found[each.column] = values if observed and values != start[each.column] else None
    return found


def _combine(levels: tuple[Level, ...], estimates: list[tuple[float, ...]]) -> tuple[Level, ...] | None:
    """Return levels with the mean of what blocks told, or None where they told nothing, or that equal values speak against."""
    if not estimates:
        return None
    means = [sum(values) / len(values) for values in zip(*estimates, strict=True)]
    ordered = _in_order([(m, level.u) for m, level in zip(means, levels, strict=True)])
    found = [replace(level, m=_rounded(m), u=_rounded(u)) for level, (m, u) in zip(levels, ordered, strict=True)]
    return tuple(found) if found[0].m > found[0].u and found[-1].m < found[-1].u else None


def _ms(levels: tuple[Level, ...]) -> tuple[float, ...]:
    return tuple(level.m for level in levels)


def _us(levels: tuple[Level, ...]) -> tuple[float, ...]:
    return tuple(level.u for level in levels)


def _with(levels: tuple[Level, ...], *, u: tuple[float, ...] | None) -> tuple[Level, ...]:
    return levels if u is None else tuple(replace(level, u=value) for level, value in zip(levels, u, strict=True))


def _in_order(probabilities: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return m and u of levels of which none adds less than the next: those that would get the weight of both together.

    Where few names are common, similar names can be rarer among strangers than equal ones. Equal values must not add less for
    it, and a backend relies on a greater similarity never adding less.
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
    """Return a probability with a few significant digits: the last bits of a sum may differ between machines."""
    return float(f"{probability:.{_DIGITS}g}")


def _estimate_chance(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> float:
    """Return how likely two random records are one entity: the matches that the weights expect among all blocks' pairs."""
    names = [gamma(each.column, fuzzy) for each in fuzzy.compare]
    with duckdb_linker(records, fuzzy, weights, threads=_THREADS) as (linker, connection):
        predicted = connection.table(linker.inference.predict(warning_mode="never").physical_name)
        patterns = predicted.aggregate(f"{', '.join(names)}, count(*) AS pairs").pl().sort(names)
    added = pl.sum_horizontal(
        pl.col(gamma(each.column, fuzzy)).replace_strict(weights.by_gamma(each.column), return_dtype=pl.Float64)
        for each in fuzzy.compare
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
