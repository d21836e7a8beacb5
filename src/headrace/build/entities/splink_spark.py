"""Compare pairs of records with Splink on the build's Spark, for tables with too many pairs for one process.

Splink's views and cached tables are in a separate session, and are dropped when the pairs are computed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.build.arrow import to_spark
from headrace.build.entities.splink_model import ID, MARGIN, compared_pairs, splink_settings
from headrace.build.entities.weights import Weights
from headrace.spark.active_session import use_session
from headrace.spec.model.fuzzy import Fuzzy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def compare_on_spark(records: pl.DataFrame, fuzzy: Fuzzy, weights: Weights, *, spark: SparkSession) -> pl.DataFrame:
    """Return the pairs with about the threshold weight or more, with the level of each compared column."""
    names = [name for name in records.columns if name != ID]
    schema = StructType([StructField(ID, LongType()), *(StructField(name, StringType()) for name in names)])
    with _own_session(spark) as session:
        return pl.DataFrame(_predict(session, to_spark(session, records, schema), fuzzy, weights).toArrow())


@contextmanager
def predict_on_spark(records: DataFrame, fuzzy: Fuzzy, weights: Weights, *, spark: SparkSession) -> Iterator[DataFrame]:
    """Yield the pairs of Spark rows, as `compare_on_spark`. The frame is valid within the block."""
    shared = f"headrace_{uuid.uuid4().hex}"
    records.createGlobalTempView(shared)  # the only kind of view that another session sees
    try:
        with _own_session(spark) as session:
            yield _predict(session, session.table(f"global_temp.{shared}"), fuzzy, weights)
    finally:
        spark.catalog.dropGlobalTempView(shared)


def _predict(session: SparkSession, records: DataFrame, fuzzy: Fuzzy, weights: Weights) -> DataFrame:
    from splink import Linker, SparkAPI

    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 2)
    api = SparkAPI(  # type: ignore[no-untyped-call]
        spark_session=session, break_lineage_method="persist", num_partitions_on_repartition=partitions
    )
    linker = Linker(api.register(records), splink_settings(fuzzy, weights), log_level=logging.ERROR, validate_settings=False)
    predictions = linker.inference.predict(threshold_match_weight=fuzzy.at_least - MARGIN, warning_mode="never")
    pairs: DataFrame = predictions.as_spark_dataframe()
    return pairs.select(*compared_pairs(fuzzy))


@contextmanager
def _own_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session with Splink's similarity functions as this thread's active session; drop its views at the end."""
    from splink.backends.spark import similarity_jar_location

    session = spark.newSession()
    use_session(session)  # Spark looks up classes in the active session, and only this one has the jar
    session._jsparkSession.sessionState().resourceLoader().addJar(similarity_jar_location())
    try:
        yield session
    finally:
        for view in session.catalog.listTables():
            if view.isTemporary:
                session.catalog.uncacheTable(view.name)
                session.catalog.dropTempView(view.name)
        use_session(spark)
