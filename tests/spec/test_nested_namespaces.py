"""Tables in nested namespaces, such as stage.shop.orders: names, queries, lineage, copies, exports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.export.airflow import DagSettings, dag_text
from headrace.export.dbt_models import Dialect
from headrace.export.dbt_project import dbt_project
from headrace.sessions.building import choose_tables
from headrace.spec import Pipeline, TableName, check_pipeline, load_pipeline
from headrace.spec.loading.scaffold import copy_pipeline
from headrace.spec.sql.lineage import Field, trace_lineage
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """\
name: shop
about: a test
namespace: "{layer}.shop"
streams:
  orders: {topic: shop.orders, format: json, schema: schemas/order.sql, table: raw.shop.orders}
  visits: {topic: visits, format: json, schema: schemas/order.sql, table: raw.visits}
queries:
  how many: SELECT count(*) FROM shape.shop.orders
""",
    "schemas/order.sql": "id BIGINT, total DECIMAL(12, 2), customer STRUCT<id: BIGINT, place: STRUCT<city: STRING>>",
    "stage/orders.sql": "SELECT id, total, customer.place.city AS city FROM raw.shop.orders",
    "shape/orders.sql": """/*
keys: [id]
sequence_by: total
*/
SELECT * FROM stage.shop.orders WHERE stage.shop.orders.id > 0""",
    "serve/totals.sql": """/*
keys: [id]
frozen: [raw.visits, stage.shop.orders]
*/
SELECT o.id, sum(o.total) AS total, (SELECT max(v.id) FROM raw.visits v) AS visits,
  (SELECT count(s.id) FROM stage.shop.orders s) AS of
FROM shape.shop.orders o GROUP BY o.id""",
    "serve/largest.py": '''from headrace import table
from pyspark.sql import DataFrame


@table(kind="full")
def largest(shape__orders: DataFrame, visits: DataFrame) -> DataFrame:
    """The largest order."""
    return shape__orders.orderBy("total").limit(1)
''',
}


def load(folder: Path, files: Mapping[str, str] | None = None) -> Pipeline:
    write_files(folder / "pipelines" / "shop", {**FILES, **(files or {})})
    return load_pipeline("shop", environ={}, folder=folder)


def test_namespace_contains_the_layer(tmp_path: Path) -> None:
    pipeline = load(tmp_path)
    tables = {str(table.table): table for table in pipeline.tables}
    assert sorted(tables) == ["serve.shop.largest", "serve.shop.totals", "shape.shop.orders", "stage.shop.orders"]
    assert tables["stage.shop.orders"].drivers == (TableName("raw.shop", "orders"),)
    assert tables["serve.shop.largest"].inputs == (TableName("shape.shop", "orders"), TableName("raw", "visits"))
    assert check_pipeline("shop", environ={}, folder=tmp_path).errors == ()
    assert TableName("stage.shop", "orders").parts == ("stage", "shop", "orders")


def test_lineage_traces_nested_namespaces(tmp_path: Path) -> None:
    lineage = trace_lineage(load(tmp_path))
    total = lineage.column(Field(TableName("serve.shop", "totals"), "total"))
    assert total
    assert [str(source) for source in total.sources] == ["shape.shop.orders.total"]
    copied = lineage.column(Field(TableName("shape.shop", "orders"), "city"))
    assert copied
    assert [str(source) for source in copied.sources] == ["stage.shop.orders.city"]
    city = lineage.column(Field(TableName("stage.shop", "orders"), "city"))
    assert city
    assert ([str(source) for source in city.sources], city.expressions) == (
        ["raw.shop.orders.customer"],
        ("customer.place.city",),
    )
    counted = lineage.column(Field(TableName("serve.shop", "totals"), "of"))
    assert counted
    assert counted.expressions == ("(SELECT COUNT(id) AS _col_0 FROM stage.shop.orders AS s)",)


def test_lineage_finds_full_and_short_names(tmp_path: Path) -> None:
    pipeline = load(tmp_path)
    lineage = trace_lineage(pipeline)
    assert lineage.find("stage.shop.orders") == TableName("stage.shop", "orders")
    assert lineage.find("stage.shop.orders.id") == Field(TableName("stage.shop", "orders"), "id")
    assert lineage.find("totals.id") == Field(TableName("serve.shop", "totals"), "id")
    assert lineage.find("shop.totals") == TableName("serve.shop", "totals")
    for name in ("orders", "shop.orders", "orders.id"):
        with pytest.raises(SpecError, match=r"table name .* is ambiguous"):
            lineage.find(name)
    assert choose_tables(pipeline, "shape.shop.orders")[-1].table == TableName("shape.shop", "orders")
    with pytest.raises(SpecError, match=r"several tables are called .*stage.shop.orders"):
        choose_tables(pipeline, "orders")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"{layer}.shop"', "a.b.c", '"a.b.c" is not a valid namespace'),
        ('"{layer}.shop"', '"{other}.shop"', '"{other}.shop" is not a valid namespace'),
        ('"{layer}.shop"', "metadata.shop", 'the namespace "metadata" is reserved for Headrace\'s own tables'),
        ("table: raw.shop.orders", "table: a.b.c.d", '"a.b.c.d" is not a valid table name'),
        ("table: raw.shop.orders", "table: metadata.shop.orders", 'the namespace "metadata" is reserved'),
        (
            "table: raw.visits}",
            "table: raw.visits}\n  shop: {topic: s, format: json, schema: schemas/order.sql, table: stage.shop}",
            "its namespace stage.shop is also a table",
        ),
    ],
)
def test_invalid_namespaces_are_rejected(tmp_path: Path, old: str, new: str, what: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, {"pipeline.yml": FILES["pipeline.yml"].replace(old, new)})
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("stage/orders.sql", "SELECT id FROM a.b.c.d", 'stage/orders.sql:1:20: "a.b.c.d" is not namespace.table'),
        ("stage/orders.sql", "SELECT id FROM raw.shop.order", "raw.shop.order is not a table of this pipeline"),
        ("shape/orders.sql", "SELECT idd FROM stage.shop.orders", 'not found: column "idd" in the inputs'),
        (
            "serve/largest.py",
            FILES["serve/largest.py"].replace("shape__orders", "orders"),
            'parameter "orders" is ambiguous: shape.shop.orders or stage.shop.orders',
        ),
    ],
)
def test_nested_namespace_errors_have_their_place(tmp_path: Path, file: str, text: str, what: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, {file: text})
    assert what in str(caught.value)


def test_copied_pipeline_has_its_own_namespaces(tmp_path: Path) -> None:
    load(tmp_path)
    copy = copy_pipeline("shop", target_name="mine", folder=tmp_path)
    assert {str(table.table) for table in load_pipeline("mine", environ={}, folder=tmp_path).tables} == {
        "stage.mine.orders",
        "shape.mine.orders",
        "serve.mine.totals",
        "serve.mine.largest",
    }
    text = (copy / "pipeline.yml").read_text()
    assert ("table: raw.mine.orders" in text, "table: mine_raw.visits" in text) == (True, True)
    assert "FROM shape.mine.orders" in text
    assert check_pipeline("mine", environ={}, folder=tmp_path).errors == ()


@pytest.mark.parametrize(("dialect", "schema"), [("duckdb", "raw__shop"), ("spark", "raw.shop")])
def test_exports_flatten_nested_namespaces(tmp_path: Path, dialect: Dialect, schema: str) -> None:
    pipeline = load(tmp_path)
    project = dbt_project(pipeline, dialect=dialect, home=".headrace")
    stage = project.files["models/stage/stage__shop__orders.sql"]
    assert "config(schema='stage__shop', alias='orders')" in stage
    assert "{{ source('raw__shop', 'orders') }}" in stage
    assert "{{ ref('shape__shop__orders') }}" in project.files["models/serve/totals.sql"]
    assert f"- name: raw__shop\n  schema: {schema}\n" in project.files["models/sources.yml"]
    dag = dag_text(pipeline, DagSettings("shop", "shop"), folder=".")
    assert 'name="stage.shop.orders",\n        task="orders",' in dag
