"""Merge-on-read deletes through Iceberg's Java library: at most one position-delete file for each data file.

The live rows of a data file are its rows minus the positions in its delete file. Every engine that reads format version 2
supports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.iceberg.files.spark_files import JavaObject
from headrace.spark.java_classes import iceberg_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_DELETED = 0.1
"""The fraction of a file's rows that may be deleted with merge-on-read before the file is rewritten."""


def deletes_of_one_file(spark: SparkSession, tasks: Sequence[JavaObject]) -> list[JavaObject]:
    """Return the delete files that apply to the data file of one of the tasks alone: they are removed with it."""
    content = iceberg_class(spark, "util.ContentFileUtil")
    lists = [task.deletes() for task in tasks]
    deletes = [files.get(index) for files in lists for index in range(files.size())]
    return [file for file in deletes if content.isFileScoped(file)]
