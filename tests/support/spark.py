"""Let what runs in this process use the Spark session that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.sessions import shared_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_spark(patch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Let everything in this process that needs Spark use this session, and neither start nor stop one."""
    patch.setattr(shared_spark, "start_spark", lambda *_, **__: spark)
    patch.setattr(shared_spark, "stop_spark", lambda _: None)
