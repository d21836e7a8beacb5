"""The plugin of an exported dbt project, tested without dbt."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import duckdb
import pyarrow as pa
import pytest
import yaml

from headrace.export import dbt_project as project
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.settings import load_settings
from headrace.spec import Column, Primitive, TableName, load_pipeline
from headrace.spec.model.layers import BUILD_ID, STATE
from tests.support.shop import write_shop

TEXT = Primitive("string")


def load_plugin(monkeypatch: pytest.MonkeyPatch) -> type:
    """Load the plugin's file with a stand-in for dbt-duckdb's base class."""
    for name in ("dbt", "dbt.adapters", "dbt.adapters.duckdb", "dbt.adapters.duckdb.plugins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["dbt.adapters.duckdb.plugins"].BasePlugin = object  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("headrace_lake", project._PLUGIN_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin: type = module.Plugin
    return plugin


def test_plugin_hides_only_what_headrace_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog = open_catalog(settings)
    tables = {"raw.orders": ("id", STATE, BUILD_ID), "gold.stats": ("g", STATE, BUILD_ID)}
    for name, columns in tables.items():
        table = TableName.parse(name)
        created = ensure_table(
            catalog,
            table,
            columns=tuple(Column(column, TEXT) for column in columns),
            location=table_location(settings, table),
        )
        created.append(pa.table({column: ["x"] for column in columns}))
    plugin = load_plugin(monkeypatch)()
    hidden = {"gold.stats": [BUILD_ID, STATE]}
    plugin.initialize({"home": str(settings.home), "tables": list(tables), "hidden": hidden})
    with duckdb.connect() as connection:
        plugin.configure_connection(connection)
        shown = {name: connection.execute(f"SELECT * FROM {name}").to_arrow_table().column_names for name in tables}
    assert shown == {"raw.orders": ["id", STATE, BUILD_ID], "gold.stats": ["g"]}


def test_profile_lists_the_added_columns_of_sources(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    # DuckDB has no xpath: the aggregate is a source, which Headrace builds.
    query = "SELECT country, max(xpath_string('<a/>', 'a')) AS text, count(*) AS n FROM staging.charges GROUP BY country"
    (folder / "marts/in_spark.sql").write_text(f"/*\nkeys: [country]\n*/\n{query}")
    (folder / "marts/reader.sql").write_text("/*\nkind: full\n*/\nSELECT * FROM marts.in_spark")
    exported = project.dbt_project(load_pipeline("shop", environ={}, folder=tmp_path), dialect="duckdb", home=".headrace")
    profile = yaml.safe_load(exported.files["profiles.yml"])["shop"]["outputs"]["duckdb"]
    (plugin,) = profile["plugins"]
    assert plugin["config"]["hidden"] == {"features.score": [BUILD_ID, STATE], "marts.in_spark": [BUILD_ID, STATE]}
