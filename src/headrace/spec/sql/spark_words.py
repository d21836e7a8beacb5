"""The built-in functions and keywords of Spark SQL."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def spark_words() -> frozenset[str]:
    """Return Spark's functions and keywords in lower case.

    The list is in spark_words.txt, so that a check needs no JVM. A test compares it with the installed Spark.
    """
    return frozenset(files("headrace.spec.sql").joinpath("spark_words.txt").read_text(encoding="utf-8").split())
