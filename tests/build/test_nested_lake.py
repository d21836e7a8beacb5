"""Tables in nested namespaces: PyIceberg, Spark and DuckDB resolve the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.build.removed import removed_name
from headrace.build.watermarks import WATERMARKS
from headrace.errors import QueryError, SpecError
from headrace.iceberg.catalog.tables import ensure_table, list_namespaces, list_tables, open_catalog, table_location
from headrace.serving.sql.query import run_query
from headrace.settings import load_settings
from headrace.spec import Column, Primitive, TableName
from tests.build.layer_lake import PIPELINE, Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (TableName("raw", "visits"), TableName("raw.shop", "orders"), TableName("raw.club", "orders"))


def test_namespace_holds_tables_and_namespaces(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog = open_catalog(settings)
    for number, name in enumerate(NAMES):
        location = table_location(settings, name)
        assert location.endswith(f"/{str(name).replace('.', '/')}")
        table = ensure_table(catalog, name, columns=(Column("n", Primitive("long")),), location=location)
        table.append(pa.table({"n": [number]}))
    assert list(list_namespaces(catalog)) == [("raw",), ("raw", "club"), ("raw", "shop")]
    assert list_tables(catalog) == ("raw.club.orders", "raw.shop.orders", "raw.visits")
    together = """SELECT raw.shop.orders.n, visits.n AS visit, (WITH club AS (SELECT n FROM raw.club.orders) SELECT n FROM club)
                  FROM raw.shop.orders JOIN raw.visits ON true"""
    assert [list(row.values()) for row in _rows(catalog, together)] == [[1, 0, 2]]
    assert _rows(catalog, "SELECT n FROM raw.visits") == [{"n": 0}]
    with pytest.raises(QueryError, match=r'table not found: "orders"(.|\n)*raw\.club\.orders'):
        run_query(catalog, "SELECT * FROM orders")
    for taken in (TableName("raw", "shop"), TableName("raw.visits", "more")):
        with pytest.raises(SpecError, match="a name is either a table or a namespace"):
            ensure_table(catalog, taken, columns=(Column("n", Primitive("long")),), location=table_location(settings, taken))


@pytest.mark.spark
def test_all_engines_read_what_spark_builds(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(
        tmp_path,
        spark,
        {
            "pipeline.yml": PIPELINE.replace("namespace: pond", 'namespace: "{layer}.pond"').replace(
                "pond.events}", "raw.pond.events}"
            ),
            "stage/latest.sql": "SELECT id, k, n, amount FROM raw.pond.events",
            "shape/latest.sql": "/*\nkeys: [k]\nsequence_by: n\n*/\nSELECT k, n, amount FROM stage.pond.latest",
            "serve/totals.sql": "/*\nkeys: [n]\n*/\nSELECT n, sum(amount) AS total FROM shape.pond.latest GROUP BY n",
        },
    )
    for number in range(2):
        layer_lake.land([Event(f"e{number}", "k", "g", number, 100 + number, "u", number)])
        layer_lake.build()
    assert list_tables(layer_lake.catalog)[-4:] == (
        "raw.pond.events",
        "serve.pond.totals",
        "shape.pond.latest",
        "stage.pond.latest",
    )
    seen = "SELECT s.n, count(*) AS events FROM shape.pond.latest s JOIN stage.pond.latest e ON e.k = s.k GROUP BY s.n"
    assert _rows(layer_lake.catalog, seen) == [{"n": 1, "events": 2}]
    assert layer_lake.catalog.load_table("shape.pond.latest").location().endswith("/shape/pond/latest")
    assert str(removed_name(TableName("shape.pond", "latest"))) in list_tables(layer_lake.catalog)
    marks = layer_lake.catalog.load_table(str(WATERMARKS)).scan().to_arrow().to_pylist()
    assert {row["pipeline_name"]: row["source_table"] for row in marks} == {
        "pond.stage.pond.latest": "raw.pond.events",
        "pond.shape.pond.latest": "stage.pond.latest",
        "pond.totals": "shape.pond.latest",
    }
    assert [row.asDict() for row in layer_lake.lake.spark.sql("SELECT n FROM headrace.shape.pond.latest").collect()] == [
        {"n": 1}
    ]


def _rows(catalog: object, sql: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = run_query(catalog, sql).to_pylist()  # type: ignore[arg-type]
    return rows
