"""The catalog in Spark: the same tables as in PyIceberg, under the same names."""

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
        # Spark keeps relations below the threshold as rows, which are several times as large as Arrow, and others as Arrow.
        "spark.sql.execution.arrow.localRelationThreshold": "4MB",
    },
    "many": {
        # Adaptive execution numbers a query's stages in the order in which they end. With the number in the class name, the
        # same code would get a new class name each time, and Java would compile it again.
        "spark.sql.codegen.useIdInClassName": "false",
    },
}


def open_spark_catalog(spark: SparkSession, settings: Settings, *, rows: Size = "many") -> SparkSession:
    """Return a new session of the same Spark application, with the catalog of these settings.

    `rows` is the expected number of rows per query. Queries on few rows are interpreted, because compiling them costs more, and
    are neither distributed nor re-planned between stages.
    """
    session = spark.newSession()
    for key, value in {**catalog_conf(settings), **_CONF[rows]}.items():
        session.conf.set(key, value)
    return session


def spark_name(name: TableName) -> str:
    """Return the table's qualified and quoted name in Spark SQL."""
    return ".".join((CATALOG_NAME, *(f"`{part}`" for part in name.parts)))
