"""The names that Spark SQL gives a meaning to: its built-in functions and its keywords."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def spark_words() -> frozenset[str]:
    """Return Spark's functions and keywords in lower case.

    They are listed in spark_words.txt, so that a check needs no JVM; a test compares the list with the Spark that is installed.
    """
    return frozenset(files("headrace.spec.sql").joinpath("spark_words.txt").read_text(encoding="utf-8").split())
