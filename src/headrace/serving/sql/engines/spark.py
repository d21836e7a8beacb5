"""Query tables with Spark SQL, through the catalog that builds use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.iceberg.catalog.properties import CATALOG_NAME
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.serving.sql.engines.failures import query_error
from headrace.serving.sql.hidden_columns import drop_hidden, list_columns
from headrace.serving.sql.question import Question
from headrace.settings import Settings
from headrace.spark.active_session import use_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask(question: Question, *, settings: Settings, spark: SparkSession) -> pa.Table:
    """Return the result of one SELECT in Spark's SQL, without hidden columns.

    The lake is the default catalog, so table names are the same as in other engines.
    """
    from pyspark.errors import PySparkException

    from headrace.spark.arrow import to_arrow

    session = open_spark_catalog(spark, settings)
    session.conf.set("spark.sql.defaultCatalog", CATALOG_NAME)
    session.conf.set("spark.sql.variable.substitute", "false")  # ${env:NAME} would read the environment
    use_session(session)
    try:
        rewritten = list_columns(question, name=lambda mention: question.sql[mention.start : mention.end], quote=_quote)
        return drop_hidden(to_arrow(session.sql(rewritten)), question)
    except PySparkException as error:
        raise query_error("Spark", _without_condition(str(error))) from error


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _without_condition(message: str) -> str:
    """Return a message of Spark without its error condition."""
    return message.partition("] ")[2] if message.startswith("[") else message
