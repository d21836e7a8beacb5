"""The catalog as Spark sees it: the same tables that PyIceberg opens, under the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace.iceberg.catalog.properties import CATALOG_NAME, catalog_conf
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Size = Literal["few", "many"]
_CONF: dict[Size, dict[str, str]] = {
    "few": {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Spark keeps smaller relations as rows, several times as large as Arrow, and larger ones as the Arrow that they were.
        "spark.sql.execution.arrow.localRelationThreshold": "4MB",
    },
    "many": {
        # Adaptive execution numbers the stages of a query in the order in which they end. With the number in the name of its
        # class, the same code would be another class each time, and Java would compile it again.
        "spark.sql.codegen.useIdInClassName": "false",
    },
}


def open_spark_catalog(spark: SparkSession, settings: Settings, *, rows: Size = "many") -> SparkSession:
    """Return a session of its own on the same Spark, whose catalog is the one of these settings.

    `rows` says of how many rows its queries are. Queries of few are interpreted, which costs less than compiling them, and are
    neither distributed nor planned again between their stages.
    """
    session = spark.newSession()
    for key, value in {**catalog_conf(settings), **_CONF[rows]}.items():
        session.conf.set(key, value)
    return session


def spark_name(name: TableName) -> str:
    """Return the table's name in Spark SQL."""
    return ".".join((CATALOG_NAME, *(f"`{part}`" for part in name.parts)))
