"""Spark columns by name."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column


@lru_cache(maxsize=4096)
def named(name: str) -> Column:
    """Return the column with this name, which may have any characters.

    The column belongs to no DataFrame, so it is cached: each call to Java takes a while, and a small build makes thousands.
    """
    return F.col(f"`{name}`")


def build_number(number: int) -> Column:
    """Return a constant BIGINT column without a literal in the generated code.

    Spark compiles literals into the code of a stage. With a different number in each build, Java would compile the code again
    in every build: a quarter of the CPU of a refresh of payments. Array values are passed to the code by reference, and an
    index that Spark can't evaluate during planning prevents constant folding.
    """
    return F.get(F.array(F.lit(number).cast("long")), F.spark_partition_id() * 0)
