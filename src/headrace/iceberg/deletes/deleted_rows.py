"""Rows that are deleted where they are, as Iceberg's Java library has them: at most one file of them for each data file.

So what a data file still has is its rows less the positions in that file. Every engine that reads version 2 knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.iceberg.files.spark_files import JavaObject
from headrace.spark.java_classes import iceberg_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_DELETED = 0.1
"""Which part of a file's rows may be deleted in it before the others are written anew."""


def deletes_of_one_file(spark: SparkSession, tasks: Sequence[JavaObject]) -> list[JavaObject]:
    """Return the delete files that are of no use without the data file of one of the tasks: no other's rows are in them."""
    content = iceberg_class(spark, "util.ContentFileUtil")
    found = [task.deletes() for task in tasks]
    deletes = [each.get(index) for each in found for index in range(each.size())]
    return [file for file in deletes if content.isFileScoped(file)]
