"""Many small manifests become few, so that a query plans faster: Iceberg's own action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyiceberg.table import Table

from headrace.iceberg.commits.java_errors import is_conflict, is_moved
from headrace.iceberg.files.spark_files import load_java_table
from headrace.iceberg.maintenance.size import data_manifests
from headrace.spark.java_classes import iceberg_class
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY_MANIFESTS = 10
_TARGET_BYTES = 8 * 1024 * 1024


def has_many_manifests(table: Table) -> bool:
    """Return whether the table has many more manifests than what is in them needs."""
    found = data_manifests(table)
    needed = sum(each.manifest_length for each in found) // _TARGET_BYTES + 1
    return len(found) >= max(MANY_MANIFESTS, 2 * needed)


def rewrite_manifests(spark: SparkSession, name: TableName) -> bool:
    """Return whether manifests were written anew; not if somebody else's commit came first, and then nothing has changed."""
    actions = iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession)
    try:
        actions.rewriteManifests(load_java_table(spark, name)).execute()
    except Py4JJavaError as error:
        if is_moved(error) or is_conflict(error):
            return False
        raise
    return True
