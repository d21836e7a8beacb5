"""The exported dbt project: its contents, that dbt accepts it, and that its rows equal Headrace's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from headrace.errors import SpecError
from headrace.export.dbt_project import dbt_project, export_project, write_project
from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.settings import load_settings
from headrace.spec import Column, Pipeline, Primitive, Query, TableName, load_pipeline
from headrace.spec.model.columns import landed_columns
from tests.export import events
from tests.export.conftest import Dbt
from tests.support.shop import write_shop


@pytest.fixture
def shop(tmp_path: Path) -> Pipeline:
    write_shop(tmp_path)
    return load_pipeline("shop", environ={}, folder=tmp_path)


def test_project_has_sources_models_and_tests(shop: Pipeline) -> None:
    project = dbt_project(shop, dialect="duckdb", home="../.headrace")
    assert {name for name in project.files if name.endswith(".sql") and name.startswith("models/")} == {
        *("models/staging/charges.sql", "models/staging/customers.sql", "models/staging/log.sql"),
        *("models/features/spending.sql", "models/marts/by_country.sql", "models/marts/all_ids.sql"),
    }
    assert "score" in project.files["models/sources.yml"], "a Python table is a source"
    assert "{{ ref('customers') }}" in project.files["models/marts/by_country.sql"]
    assert "{{ source('raw', 'charges') }}" in project.files["models/staging/charges.sql"]
    assert not [name for name, text in project.files.items() if "/tmp" in text or str(shop.folder) in text], "nothing absolute"


def test_spark_models_keep_the_query_text(shop: Pipeline) -> None:
    project = dbt_project(shop, dialect="spark", home="../.headrace")
    text = project.files["models/marts/by_country.sql"]
    assert "LEFT JOIN {{ ref('customers') }} AS v ON v.customerId = c.customerId AND v.is_current\n" in text
    assert "PARTITION BY `id`" in project.files["models/staging/charges.sql"]
    assert "/*" not in text, "the settings stay behind"
    assert "macros/generate_schema_name.sql" not in project.files, "on Spark models must not replace Headrace's tables"


def test_project_names_models_uniquely(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    (folder / "marts/log.sql").write_text("SELECT id, hour FROM staging.log AS l")
    project = dbt_project(load_pipeline("shop", environ={}, folder=tmp_path), dialect="duckdb", home=".headrace")
    assert "{{ ref('staging__log') }}" in project.files["models/marts/marts__log.sql"]
    assert "alias='log'" in project.files["models/marts/marts__log.sql"]


@pytest.mark.parametrize("name", ["payments", "weather"])
def test_duckdb_accepts_every_built_in_model(name: str, tmp_path: Path) -> None:
    pipeline = load_pipeline(name, environ={}, folder=tmp_path)
    project = dbt_project(pipeline, dialect="duckdb", home=".headrace")
    tables = {table.table.name: table.table for table in pipeline.tables}
    with duckdb.connect() as connection:
        names = [*(stream.table for stream in pipeline.streams), *tables.values()]
        for namespace in {name.namespace for name in names}:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{namespace}"')
        for stream in pipeline.streams:
            connection.register("empty", iceberg_schema(landed_columns(stream)).as_arrow().empty_table())
            connection.execute(f'CREATE TABLE "{stream.table.namespace}"."{stream.table.name}" AS FROM empty')
        for table in pipeline.tables:
            home = f'"{table.table.namespace}"."{table.table.name}"'
            rows = pipeline.folder / "expected" / table.layer / f"{table.table.name}.jsonl"
            if isinstance(table.source, Query):
                text = project.files[f"models/{table.layer}/{table.table.name}.sql"]
                text = re.sub(r"\{#.*?#\}|\{\{ config.*?\}\}", "", text, flags=re.DOTALL)
                text = re.sub(r"\{\{ source\('(\w+)', '(\w+)'\) \}\}", r'"\1"."\2"', text)
                text = re.sub(r"\{\{ ref\('(\w+)'\) \}\}", lambda match: f'"{tables[match[1]].namespace}"."{match[1]}"', text)
                connection.execute(f"CREATE TABLE {home} AS {text}")
                columns = {row[0] for row in connection.execute(f"DESCRIBE {home}").fetchall()}
                assert columns == set(json.loads(rows.read_text(encoding="utf-8").partition("\n")[0])), table.table
            else:
                connection.execute(f"CREATE TABLE {home} AS FROM read_json(?)", [str(rows)])


def test_project_notes_functions_that_differ_in_duckdb(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    (folder / "marts/days.sql").write_text("SELECT id, dayofweek(hour) AS day, 'hash' AS what FROM staging.log AS l")
    project = dbt_project(load_pipeline("shop", environ={}, folder=tmp_path), dialect="duckdb", home=".headrace")
    assert project.notes == ("marts.days: DuckDB differs from Spark in dayofweek; check the model before you use it",)


def test_entities_table_is_a_source(tmp_path: Path) -> None:
    folder = write_shop(tmp_path)
    settings = "kind: entities\nkeys: [customerId]\nsequence_by: valid_from\nmatch: {land: {from: country, as: exact}}"
    (folder / "marts/index.sql").write_text(
        f"/*\n{settings}\n*/\nSELECT customerId, country, valid_from FROM staging.customers"
    )
    (folder / "marts/sizes.sql").write_text(
        "/*\nkeys: [entity_id]\n*/\nSELECT entity_id, count(*) AS n FROM marts.index GROUP BY 1"
    )
    project = dbt_project(load_pipeline("shop", environ={}, folder=tmp_path), dialect="duckdb", home=".headrace")
    assert "models/marts/index.sql" not in project.files
    assert "{{ source('marts', 'index') }}" in project.files["models/marts/sizes.sql"]
    assert project.notes == ("marts.index: a model can't represent entities; it is a source, which Headrace builds",)


def test_project_rejects_a_pipeline_without_models(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no SQL tables to export"):
        dbt_project(load_pipeline("lineage", environ={}, folder=tmp_path), dialect="duckdb", home=".headrace")


def test_second_export_removes_only_its_own_old_files(shop: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "dbt"
    project = dbt_project(shop, dialect="duckdb", home="../.headrace")
    write_project(project, folder)
    (folder / "models/mine.sql").write_text("SELECT 1 AS one")
    (folder / "models/staging/old.sql").write_text(project.files["models/staging/log.sql"])
    write_project(project, folder)
    assert (folder / "models/mine.sql").exists()
    assert not (folder / "models/staging/old.sql").exists()


def test_export_rejects_a_foreign_folder(shop: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="not empty"):
        write_project(dbt_project(shop, dialect="duckdb", home=".headrace"), tmp_path)
    assert not (tmp_path / "dbt_project.yml").exists()


@pytest.mark.dbt
@pytest.mark.parametrize("seed", [1, 2])
def test_dbt_builds_the_rows_that_headrace_builds(shop: Pipeline, tmp_path: Path, dbt: Dbt, seed: int) -> None:
    raw = events.make_charges(400, seed=seed)
    _write_lake(tmp_path, shop, raw)
    project = tmp_path / "projects" / "shop"
    export_project(load_settings(flags={}, environ={}, folder=tmp_path), shop, folder=project, dialect="duckdb")
    output = dbt(project, "build")
    assert "ERROR=0" in output
    assert "WARN=1" in output, "the count expectation 'the address is known' fails, which is a warning"
    charges, customers = events.expected_charges(raw), events.expected_customers(raw)
    expected = {
        "staging.charges": charges,
        "staging.customers": customers,
        "features.spending": events.expected_spending(charges),
        "marts.by_country": events.expected_by_country(charges, customers),
    }
    with duckdb.connect(str(project / "headrace_dbt.duckdb"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in expected.items():
            built = connection.execute(f"SELECT * FROM {name}").to_arrow_table().to_pylist()
            assert events.in_order(built) == events.in_order(rows), name
        counts = "SELECT (SELECT count(*) FROM staging.log), (SELECT count(*) FROM marts.all_ids WHERE what = 'charge')"
        assert connection.execute(counts).fetchone() == (len(raw), 2)


@pytest.mark.dbt
def test_dbt_fails_when_headrace_fails(shop: Pipeline, tmp_path: Path, dbt: Dbt) -> None:
    raw = [{**row, "customerId": None} for row in events.make_charges(40, seed=3)]
    _write_lake(tmp_path, shop, raw)
    project = tmp_path / "shop"
    export_project(load_settings(flags={}, environ={}, folder=tmp_path), shop, folder=project, dialect="duckdb")
    output = dbt(project, "build", "--select", "charges", fails=True)
    assert "charges_4_the_charge_has_a_customer" in output


def _write_lake(folder: Path, pipeline: Pipeline, raw: list[events.Row]) -> None:
    """Write the tables of the project's sources as Headrace would."""
    settings = load_settings(flags={}, environ={}, folder=folder)
    catalog, stream = open_catalog(settings), pipeline.streams[0]
    columns = (*stream.columns, Column("kafka_offset", Primitive("long")))
    table = ensure_table(catalog, stream.table, columns=columns, location=f"{settings.warehouse}/raw/charges")
    table.append(pa.Table.from_pylist(raw, schema=table.schema().as_arrow()))
    score = ensure_table(
        catalog,
        TableName("features", "score"),
        columns=(Column("id", Primitive("string")), Column("points", Primitive("int")), Column("_build_id", Primitive("long"))),
        location=f"{settings.warehouse}/features/score",
    )
    rows = [{"id": "c1", "points": 2, "_build_id": 1}, {"id": "c2", "points": 2, "_build_id": 1}]
    score.append(pa.Table.from_pylist(rows, schema=score.schema().as_arrow()))
