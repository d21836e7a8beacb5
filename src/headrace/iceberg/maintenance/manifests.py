"""Merge small manifests with Iceberg's own action, so that queries plan faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyiceberg.table import Table

from headrace.iceberg.commits.java_errors import is_conflict, is_validation_error
from headrace.iceberg.files.spark_files import load_java_table
from headrace.iceberg.maintenance.size import data_manifests
from headrace.spark.java_classes import iceberg_class
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY_MANIFESTS = 10
_TARGET_BYTES = 8 * 1024 * 1024


def has_many_manifests(table: Table) -> bool:
    """Return whether the table has many more manifests than their total size needs."""
    manifests = data_manifests(table)
    needed = sum(manifest.manifest_length for manifest in manifests) // _TARGET_BYTES + 1
    return len(manifests) >= max(MANY_MANIFESTS, 2 * needed)


def rewrite_manifests(spark: SparkSession, name: TableName) -> bool:
    """Merge the table's manifests. Return False, with the table unchanged, if another commit came first."""
    actions = iceberg_class(spark, "spark.actions.SparkActions").get(spark._jsparkSession)
    try:
        actions.rewriteManifests(load_java_table(spark, name)).execute()
    except Py4JJavaError as error:
        if is_validation_error(error) or is_conflict(error):
            return False
        raise
    return True
