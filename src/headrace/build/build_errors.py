"""What Spark's errors mean for a table."""

from __future__ import annotations

from pyspark.errors import PySparkException

from headrace.build.versions import NOT_UNIQUE
from headrace.errors import BuildError, SpecError
from headrace.spec.layers import LayerTable


def not_unique(table: LayerTable, key: str) -> SpecError:
    """Return the error for a query that gives several rows of one key, which is written as JSON."""
    return table.error(f"several rows have the key {key}", at="keys", fix="Group by the keys, or name more of them")


def explain_spark_error(table: LayerTable, error: PySparkException) -> Exception:
    """Return the error of a build that says which data or query is wrong and what to do next."""
    text = str(error)
    if NOT_UNIQUE in text:
        key = text.split(NOT_UNIQUE, 1)[1].splitlines()[0].split(" SQLSTATE")[0].strip()
        return not_unique(table, key)
    return BuildError(
        f"Spark could not compute the table: {text.splitlines()[0]}",
        where=table.place.label,
        next_step="Nothing was published. The whole error is in logs/spark.log.",
    )
