"""The catalog as Spark sees it: the same tables that PyIceberg opens, under the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace.settings import Settings
from headrace.spec.pipeline import TableName
from headrace.tables.catalog_properties import CATALOG_NAME, catalog_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Size = Literal["few", "thousands", "many"]
_IN_ONE_PARTITION = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Spark keeps smaller relations as rows, several times as large as Arrow, and larger ones as the Arrow bytes they came as.
    "spark.sql.execution.arrow.localRelationThreshold": "4MB",
}
_CONF: dict[Size, dict[str, str]] = {
    "few": {**_IN_ONE_PARTITION, "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    "thousands": _IN_ONE_PARTITION,
    "many": {},
}


def open_spark_catalog(spark: SparkSession, settings: Settings, *, rows: Size = "many") -> SparkSession:
    """Gives back a session of its own on the same Spark, whose catalog is the one of these settings.

    `rows` says of how many rows its queries are. For few it doesn't compile them, which takes longer than to interpret them;
    for up to some ten thousand it doesn't distribute them or plan them again between their stages.
    """
    session = spark.newSession()
    for key, value in {**catalog_conf(settings), **_CONF[rows]}.items():
        session.conf.set(key, value)
    return session


def use_session(spark: SparkSession) -> None:
    """Makes a session the one that Iceberg finds in this thread: it looks names up in the session that is active."""
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def spark_name(name: TableName) -> str:
    """Gives back the table's name in Spark SQL."""
    return ".".join((CATALOG_NAME, *(f"`{part}`" for part in name.parts)))
