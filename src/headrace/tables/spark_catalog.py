"""The catalog as Spark sees it: the same tables that PyIceberg opens, under the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.settings import Settings
from headrace.spec.pipeline import TableName
from headrace.tables.catalog_properties import CATALOG_NAME, catalog_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOR_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


def open_spark_catalog(spark: SparkSession, settings: Settings, *, few_rows: bool = False) -> SparkSession:
    """Gives back a session of its own on the same Spark, whose catalog is the one of these settings.

    With `few_rows` it neither compiles queries nor plans them anew between their stages: what that gains with many rows, it
    costs several times over with few.
    """
    session = spark.newSession()
    for key, value in {**catalog_conf(settings), **(_FOR_FEW_ROWS if few_rows else {})}.items():
        session.conf.set(key, value)
    return session


def use_session(spark: SparkSession) -> None:
    """Makes a session the one that Iceberg finds in this thread: it looks names up in the session that is active."""
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def spark_name(name: TableName) -> str:
    """Gives back the table's name in Spark SQL."""
    return ".".join((CATALOG_NAME, *(f"`{part}`" for part in name.parts)))
