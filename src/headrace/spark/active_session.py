"""The session that is active in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Make a session the one that Iceberg finds in this thread: it looks names up in the session that is active."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)
