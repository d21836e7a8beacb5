"""Columns by their name, for Spark."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column


@lru_cache(maxsize=4096)
def named(name: str) -> Column:
    """Return the column of a name, whatever characters are in it.

    It belongs to no DataFrame, so one is kept for all: each question to Spark takes a while, and a small build asks thousands.
    """
    return F.col(f"`{name}`")


def build_number(number: int) -> Column:
    """Return a BIGINT column that has the same number in every row, without writing the number into generated code.

    Spark compiles a literal into the code of its stage. With another number in each build, Java would compile that code again
    in every build: a quarter of the CPU of a refresh of payments. Values of arrays are passed to the code by reference, and
    an index that Spark can't compute while it plans keeps the array from becoming a literal number.
    """
    return F.get(F.array(F.lit(number).cast("long")), F.spark_partition_id() * 0)
