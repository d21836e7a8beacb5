"""Columns by their name, for Spark."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column


@lru_cache(maxsize=4096)
def named(name: str) -> Column:
    """Gives back the column of a name, whatever characters are in it.

    It belongs to no DataFrame, so one is kept for all: each question to Spark takes a while, and a small build asks thousands.
    """
    return F.col(f"`{name}`")
