"""The catalog as Spark sees it: the same tables that PyIceberg opens, under the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.errors import SettingsError
from headrace.settings import Settings
from headrace.spec.pipeline import TableName
from headrace.tables.catalog import CATALOG_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SQLITE = "sqlite:///"


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


def catalog_conf(settings: Settings) -> Mapping[str, str]:
    """Gives back Spark's configuration of the catalog. Nothing is cached: landing commits beside Spark."""
    prefix = f"spark.sql.catalog.{CATALOG_NAME}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": _jdbc_uri(settings.catalog_uri),
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": settings.warehouse,
        f"{prefix}.cache-enabled": "false",
    }


def spark_name(name: TableName) -> str:
    """Gives back the table's name in Spark SQL."""
    return ".".join((CATALOG_NAME, *(f"`{part}`" for part in name.parts)))


def _jdbc_uri(uri: str) -> str:
    if uri.startswith(_SQLITE):
        return f"jdbc:sqlite:{uri.removeprefix(_SQLITE)}?journal_mode=WAL&busy_timeout=30000"
    raise SettingsError(
        f"Spark can't open the catalog {uri.split(':', 1)[0]}:…",
        where="catalog.uri",
        next_step="Use a SQLite catalog (sqlite:///path/catalog.db), or leave catalog.uri out.",
    )
