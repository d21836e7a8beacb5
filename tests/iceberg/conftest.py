from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.settings import Settings, load_settings
from headrace.spark.active_session import use_session
from headrace.spec import Column, Primitive, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A real SQLite catalog of this test's own."""
    return open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))


@pytest.fixture
def table(catalog: Catalog, tmp_path: Path) -> Table:
    """An empty table with a column `n`."""
    columns = (Column("n", Primitive("long")),)
    return ensure_table(catalog, TableName("raw", "numbers"), columns=columns, location=f"file://{tmp_path}/numbers")


@pytest.fixture
def session(spark: SparkSession, lake_settings: Settings) -> SparkSession:
    """The active session, whose catalog is the one of `lake_settings`."""
    own = open_spark_catalog(spark, lake_settings)
    use_session(own)
    return own
