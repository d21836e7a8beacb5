"""Match weights of pairs of records, by Splink on Spark. Nothing is trained: all probabilities are given.

Splink's views and the copies that it keeps are in a session of their own, and go when the weights are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.layers.arrow import to_spark
from headrace.layers.entities.alike import LEFT, PAIRS, RIGHT, WEIGHT, Score, block_columns
from headrace.layers.entities.levels import CHANCE, LEVELS, Level
from headrace.layers.entities.names import NODE
from headrace.spec.fuzzy import Fuzzy
from headrace.spec.layers import LayerTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from splink import SettingsCreator
    from splink.internals.comparison_level_creator import ComparisonLevelCreator

_ID = "unique_id"


def splink_score(table: LayerTable, *, spark: SparkSession) -> Score | None:
    """Gives back how the table's pairs are weighed, or None where it does not ask for it; without Splink it is a SpecError."""
    fuzzy = table.fuzzy
    if fuzzy is None:
        return None
    table.check_extras()
    return lambda records: _weigh(records, fuzzy, spark=spark)


def _weigh(records: pl.DataFrame, fuzzy: Fuzzy, *, spark: SparkSession) -> pl.DataFrame:
    from splink import Linker, SparkAPI

    numbered = records.with_row_index(_ID).with_columns(pl.col(_ID).cast(pl.Int64))
    names = [name for name in records.columns if name != NODE]
    schema = StructType([StructField(_ID, LongType()), *(StructField(name, StringType()) for name in names)])
    with _own_session(spark) as session:
        partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 2)
        api = SparkAPI(  # type: ignore[no-untyped-call]
            spark_session=session, break_lineage_method="persist", num_partitions_on_repartition=partitions
        )
        registered = api.register(to_spark(session, numbered, schema))
        linker = Linker(registered, _settings(fuzzy), log_level=logging.ERROR, validate_settings=False)
        found = linker.inference.predict(threshold_match_weight=fuzzy.at_least, warning_mode="never")
        pairs = pl.DataFrame(found.as_spark_dataframe().select(f"{_ID}_l", f"{_ID}_r", "match_weight").toArrow())
    return pl.DataFrame(
        {
            LEFT: numbered[NODE].gather(pairs[f"{_ID}_l"]),
            RIGHT: numbered[NODE].gather(pairs[f"{_ID}_r"]),
            WEIGHT: pairs["match_weight"],
        },
        schema=PAIRS,
    )


@contextmanager
def _own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Gives a session with Splink's similarity functions; what it keeps is dropped at the end."""
    from splink.backends.spark import similarity_jar_location

    session = spark.newSession()
    session._jsparkSession.sessionState().resourceLoader().addJar(similarity_jar_location())
    try:
        yield session
    finally:
        for view in session.catalog.listTables():
            if view.isTemporary:
                session.catalog.uncacheTable(view.name)
                session.catalog.dropTempView(view.name)


def _settings(fuzzy: Fuzzy) -> SettingsCreator:
    from splink import SettingsCreator, block_on
    from splink import comparison_level_library as levels
    from splink import comparison_library as comparisons

    compare = []
    for each in fuzzy.compare:
        column = f"c{fuzzy.columns.index(each.column)}"
        found = (levels.NullLevel(column), *(_level(level, column) for level in LEVELS[each.how]))
        compare.append(comparisons.CustomComparison([*found], output_column_name=column))
    return SettingsCreator(
        link_type="dedupe_only",
        comparisons=list(compare),
        blocking_rules_to_generate_predictions=[block_on(*block_columns(block, fuzzy)) for block in fuzzy.block_on],
        probability_two_random_records_match=CHANCE,
        retain_matching_columns=False,
        unique_id_column_name=_ID,
    )


def _level(level: Level, column: str) -> ComparisonLevelCreator:
    from splink import ColumnExpression
    from splink import comparison_level_library as levels

    tests: dict[str, Callable[[], ComparisonLevelCreator]] = {
        "equal": lambda: levels.ExactMatchLevel(column),
        "equal_mailbox": lambda: levels.ExactMatchLevel(ColumnExpression(column).regex_extract("^[^@]+")),
        "jaro_winkler": lambda: levels.JaroWinklerLevel(column, level.limit),
        "levenshtein": lambda: levels.LevenshteinLevel(column, int(level.limit)),
        "else": levels.ElseLevel,
    }
    return tests[level.test]().configure(m_probability=level.m, u_probability=level.u)
