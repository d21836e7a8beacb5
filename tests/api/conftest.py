"""What tests of the Python API share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.orders import write_shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the pipeline shop, whose tables are tested on the Spark session that all tests share."""
    monkeypatch.setattr("headrace.testing.table_test.shared_session", lambda: spark)
    return write_shop(tmp_path)
