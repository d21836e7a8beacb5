"""Compare pairs of records with Splink on DuckDB in this process: no job, no shuffle, a second instead of a minute on Spark.

DuckDB's Jaro-Winkler similarity differs from Spark's (see `similarity`). For texts of single-byte characters it is an upper
bound; the levels of the pairs that it finds are then computed with the exact similarity.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl

from headrace.build.entities.levels import Level
from headrace.build.entities.similarity import code_units, jaro_winkler
from headrace.build.entities.splink_model import ID_LEFT, ID_RIGHT, MARGIN, compared_pairs, gamma, place, splink_settings
from headrace.build.entities.weights import Weights
from headrace.iceberg.rows.duck import quote_text
from headrace.spec.model.fuzzy import Fuzzy

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from splink import Linker
    from splink.internals.comparison_level_creator import ComparisonLevelCreator

MEMORY = "1GB"
"""DuckDB's memory limit, beside the build's own memory, before it spills to a temporary folder."""

LONGEST = 63
"""The longest text that can be compared here if a column has non-ASCII texts: two texts must fit into ASCII's 127
characters."""

_SLACK = 1e-9
_ALPHABET = "".join(chr(code) for code in range(1, 128)).replace("'", "''")
_SIMILARITY = f"""
CREATE MACRO most_similar(a, b) AS CASE
  WHEN strlen(a) = length(a) AND strlen(b) = length(b) THEN jaro_winkler_similarity(a, b)
  ELSE jaro_winkler_similarity(translate(a, a || b, '{_ALPHABET}'), translate(b, a || b, '{_ALPHABET}'))
END"""
"""Translation maps each distinct character of the two texts to a byte: the similarity only depends on which ones are equal."""


def can_compare(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> bool:
    """Return whether DuckDB can compare all values that are compared by similarity."""
    for column in _by_similarity(fuzzy, weights):
        values = records[place(column, fuzzy)].drop_nulls()
        is_ascii = (values.str.len_bytes() == values.str.len_chars()).all()
        long = values.filter(values.str.len_bytes() > LONGEST).unique()
        if not is_ascii and any(len(code_units(text)) > LONGEST for text in long):
            return False
    return True


def compare_on_duckdb(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights) -> pl.DataFrame:
    """Return the pairs with about the threshold weight or more, with the level of each compared column.

    The weights of a column's levels must descend, as fixed and trained weights do: then no pair is missed.
    """
    with duckdb_linker(records, fuzzy, weights) as (linker, connection):
        predictions = linker.inference.predict(threshold_match_weight=fuzzy.at_least - MARGIN, warning_mode="never")
        pairs = connection.table(predictions.physical_name).select(*compared_pairs(fuzzy)).pl()
    for column in _by_similarity(fuzzy, weights):
        pairs = _decide_levels(pairs, records[place(column, fuzzy)], gamma(column, fuzzy), weights.levels[column])
    return pairs


@contextmanager
def duckdb_linker(
    records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights, *, threads: int | None = None
) -> Iterator[tuple[Linker, DuckDBPyConnection]]:
    """Yield Splink's linker for the records, and the connection that holds its results."""
    import duckdb
    from splink import DuckDBAPI, Linker

    by_unit = [place(column, fuzzy) for column in _by_similarity(fuzzy, weights)]
    records = records.with_columns(_in_code_units(records[name]) for name in by_unit)
    with TemporaryDirectory(prefix="headrace-fuzzy-") as folder, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = {quote_text(MEMORY)}")
        connection.execute(f"SET temp_directory = {quote_text(folder)}")
        if threads:
            connection.execute(f"SET threads = {threads}")
        connection.execute(_SIMILARITY)
        registered = DuckDBAPI(connection=connection).register(records.to_arrow(compat_level=pl.CompatLevel.oldest()))
        settings = splink_settings(fuzzy, weights, similar=_similar)
        yield Linker(registered, settings, log_level=logging.ERROR, validate_settings=False), connection


def _by_similarity(fuzzy: Fuzzy, weights: Weights) -> list[str]:
    columns = [comparison.column for comparison in fuzzy.compare]
    return [column for column in columns if any(level.test == "jaro_winkler" for level in weights.levels[column])]


def _in_code_units(texts: pl.Series) -> pl.Series:
    astral = texts.str.contains("[\\x{10000}-\\x{10FFFF}]").fill_null(False)
    if not astral.any():
        return texts
    return texts.scatter(astral.arg_true(), pl.Series([code_units(text) for text in texts.filter(astral)]))


def _similar(column: str, limit: float) -> ComparisonLevelCreator:
    from splink import comparison_level_library as levels

    return levels.CustomLevel(f'most_similar("{column}_l", "{column}_r") >= {limit - _SLACK!r}')


def _decide_levels(pairs: pl.DataFrame, values: pl.Series, level: str, levels: tuple[Level, ...]) -> pl.DataFrame:
    """Return the pairs with the level of one column computed from the exact similarity instead of the upper bound."""
    last = len(levels) - 1
    bounded = {last - number for number, candidate in enumerate(levels) if candidate.test == "jaro_winkler"}
    sides = pl.DataFrame({"l": values.gather(pairs[ID_LEFT]), "r": values.gather(pairs[ID_RIGHT]), "was": pairs[level]})
    open_pairs = sides.filter(pl.col("was").is_in(list(bounded))).unique()
    decided = [_first_met(levels, last - was, jaro_winkler(left, right)) for left, right, was in open_pairs.iter_rows()]
    changed = open_pairs.with_columns(pl.Series("now", [last - number for number in decided], dtype=pairs.schema[level]))
    now = sides.join(changed, on=["l", "r", "was"], how="left", maintain_order="left")
    return pairs.with_columns(now.select(pl.coalesce("now", "was")).to_series().alias(level))


def _first_met(levels: tuple[Level, ...], start: int, similarity: float) -> int:
    """Return the first level from `start` on that a similarity meets. Only similarity levels and the last level follow."""
    return next(
        number
        for number, level in enumerate(levels[start:], start)
        if level.test == "else" or (level.test == "jaro_winkler" and similarity >= level.limit)
    )
