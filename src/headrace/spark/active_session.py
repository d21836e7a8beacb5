"""Set the active Spark session of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Make a session this thread's active session, in which Iceberg looks up names."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)
