from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.settings import load_settings
from headrace.spec import Column, Primitive, TableName


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A real SQLite catalog of this test's own."""
    return open_catalog(load_settings(flags={}, environ={}, folder=tmp_path))


@pytest.fixture
def table(catalog: Catalog, tmp_path: Path) -> Table:
    """An empty table with a column `n`."""
    columns = (Column("n", Primitive("long")),)
    return ensure_table(catalog, TableName("raw", "numbers"), columns=columns, location=f"file://{tmp_path}/numbers")
