"""The in-process engines: the same names, rows and types, and helpful errors."""

from __future__ import annotations

import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace.errors import QueryError
from headrace.iceberg.catalog.tables import ensure_table, list_tables, open_catalog, table_location
from headrace.serving.sql.engines.names import DIALECTS, Engine
from headrace.serving.sql.engines.spark import ask as ask_spark
from headrace.serving.sql.engines.trino_values import make_column
from headrace.serving.sql.question import Mention, read_question
from headrace.settings import load_settings
from headrace.spec import Column, Primitive, TableName
from headrace.spec.model.types import Array, Map, Struct
from headrace.spec.model.types import Decimal as DecimalType
from tests.support.engine_rows import IN_PROCESS, check_engines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT, LONG = Primitive("string"), Primitive("long")
COLUMNS = (
    *(Column(name, Primitive(name)) for name in ("boolean", "int", "long", "float", "double", "date")),
    Column("moment", Primitive("timestamp")),
    Column("wall_clock", Primitive("timestamp_ntz")),
    Column("text", TEXT),
    Column("bytes", Primitive("binary")),
    Column("amount", DecimalType(38, 10)),
    Column("texts", Array(TEXT)),
    Column("nested", Array(Array(LONG))),
    Column("records", Array(Struct((Column("a", TEXT), Column("b", DecimalType(5, 2)))))),
    Column("by_name", Map(DecimalType(9, 3))),
    Column("struct", Struct((Column("when", Primitive("timestamp")), Column("list", Array(TEXT))))),
)
FULL: dict[str, Any] = {
    "boolean": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 1.5,
    "double": 0.1,
    "date": date(1953, 4, 22),
    "moment": datetime(2026, 3, 1, 9, 30, 0, 123456, tzinfo=timezone.utc),
    "wall_clock": datetime(1969, 12, 31, 23, 59, 59, 999999),
    "text": "naïve \u2665 'quoted'",
    "bytes": b"\x00\xff\xfe",
    "amount": Decimal("-1234567890123456789012345678.0123456789"),
    "texts": ["a", None, ""],
    "nested": [[1, 2], [], None],
    "records": [{"a": "x", "b": Decimal("1.10")}, {"a": None, "b": None}],
    "by_name": [("one", Decimal("1.000")), ("two", None)],
    "struct": {"when": datetime(2026, 1, 1, tzinfo=timezone.utc), "list": ["v"]},
}

NAMES = """WITH seen AS (SELECT n FROM default.visits) -- raw.shop.orders is a comment: ♥
           SELECT raw.shop.orders.n AS n, seen.n AS visit
           FROM raw.shop.orders JOIN seen ON seen.n = orders.n + 1 ORDER BY 1"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    settings = load_settings(flags={}, environ={}, folder=tmp_path_factory.mktemp("engines"))
    catalog = open_catalog(settings)
    names = (TableName("raw", "orders"), TableName("raw.shop", "orders"), TableName("default", "visits"))
    for number, name in enumerate(names):
        table = ensure_table(catalog, name, columns=(Column("n", LONG),), location=table_location(settings, name))
        table.append(pa.table({"n": [number, number + 10]}))
    return catalog


def test_every_type_is_the_same_in_every_engine(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    catalog, name = open_catalog(settings), TableName("raw", "types")
    table = ensure_table(catalog, name, columns=COLUMNS, location=table_location(settings, name))
    nothing: dict[str, Any] = {
        **dict.fromkeys(FULL),
        "records": [],
    }  # PyIceberg, which writes it here, makes an empty list of none
    truth = pa.Table.from_pylist([FULL, nothing], schema=table.schema().as_arrow())
    table.append(truth)
    check_engines(catalog, {str(name): truth})


@pytest.mark.parametrize("engine", IN_PROCESS)
def test_names_are_the_same_in_every_engine(catalog: Catalog, engine: Engine) -> None:
    assert IN_PROCESS[engine](catalog, NAMES).to_pylist() == [{"n": 1, "visit": 2}, {"n": 11, "visit": 12}]


@pytest.mark.spark
def test_names_are_the_same_in_spark(catalog: Catalog, spark: SparkSession) -> None:
    settings = load_settings(
        flags={}, environ={}, folder=Path(catalog.properties["warehouse"].removeprefix("file://")).parents[1]
    )

    def ask(sql: str) -> list[dict[str, Any]]:
        question = read_question(sql, dialect=DIALECTS[Engine.spark], known=list_tables(catalog))
        rows: list[dict[str, Any]] = ask_spark(question, settings=settings, spark=spark).to_pylist()
        return rows

    assert ask(NAMES) == [{"n": 1, "visit": 2}, {"n": 11, "visit": 12}]
    with pytest.raises(
        QueryError, match="Spark rejected the query: A column, variable, or function parameter with name `nobody`"
    ):
        ask("SELECT nobody FROM raw.orders")
    assert ask("SELECT '${env:PATH} ${spark.app.name}' AS text") == [{"text": "${env:PATH} ${spark.app.name}"}]


@pytest.mark.parametrize("engine", [engine for engine in IN_PROCESS if engine != Engine.duckdb])
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT n FROM raw.shop.oders", 'query: table not found: "raw.shop.oders"\nDid you mean "raw.shop.orders"?'),
        ("SELECT n FROM visits", 'query: table not found: "visits"\nDid you mean "default.visits"?'),
        ("DROP TABLE raw.orders", "query: only SELECT queries are allowed, and this is DROP"),
        ("SELECT 1; SELECT 2", "query: a query must be one SELECT, and this has 2 statements"),
        (" ", "query: the query is empty"),
        ("SELECT nobody FROM raw.orders", "nobody"),
        ("SELECT n FROM\n WHERE n", "query:2:2: "),
        ("SELECT *\nFROM url('http://127.0.0.1/')", "query:2:6: a query can read only tables of the lake"),
        ("SELECT * FROM read_csv('/etc/passwd')", "query:1:15: a query can read only tables of the lake"),
    ],
)
def test_engines_explain_what_is_wrong(catalog: Catalog, engine: Engine, sql: str, said: str) -> None:
    with pytest.raises(QueryError) as raised:
        IN_PROCESS[engine](catalog, sql)
    assert said in str(raised.value)
    assert raised.value.next_step


def test_polars_requires_aliases_for_ambiguous_names(catalog: Catalog) -> None:
    ask = IN_PROCESS[Engine.polars]
    both = "SELECT a.n AS a, b.n AS b FROM raw.orders AS a CROSS JOIN raw.shop.orders AS b ORDER BY 1, 2 LIMIT 1"
    assert ask(catalog, both).to_pylist() == [{"a": 0, "b": 1}]
    with pytest.raises(QueryError, match=r"ambiguous: it means raw\.orders and raw\.shop\.orders"):
        ask(catalog, "SELECT raw.orders.n FROM raw.orders CROSS JOIN raw.shop.orders")


def test_missing_clickhouse_names_the_install_command(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chdb.state.sqlitelike", None)
    with pytest.raises(QueryError, match=r"ClickHouse is not installed(.|\n)*pip install 'headrace\[clickhouse\]'"):
        IN_PROCESS[Engine.clickhouse](catalog, "SELECT n FROM raw.orders")


@pytest.mark.parametrize("engine", Engine)
def test_names_are_replaced_where_they_are_names(engine: Engine) -> None:
    sql = """SELECT raw.shop.orders.n, 'raw.shop.orders', o.raw
             FROM raw.shop.orders JOIN raw.orders AS o ON o.n = raw.shop.orders.n"""
    question = read_question(sql, dialect=DIALECTS[engine], known=["raw.orders", "raw.shop.orders"])
    assert question.tables == ("raw.shop.orders", "raw.orders")

    def name(mention: Mention) -> str:
        return f"<{mention.table}>"

    assert (
        question.rename(name)
        == """SELECT <raw.shop.orders>.n, 'raw.shop.orders', o.raw
             FROM <raw.shop.orders> JOIN <raw.orders> AS o ON o.n = <raw.shop.orders>.n"""
    )


def _kind(name: str, *arguments: Any) -> dict[str, Any]:
    return {"rawType": name, "arguments": [{"value": argument} for argument in arguments]}


UTC = pa.timestamp("us", "UTC")
MOMENT = _kind("timestamp with time zone", 6)
ROW = _kind("row", {"fieldName": {"name": "a"}, "typeSignature": _kind("bigint")}, {"typeSignature": _kind("varbinary")})


@pytest.mark.parametrize(
    ("signature", "written", "value", "kind"),
    [
        (_kind("decimal", 38, 10), "-1.0000000001", Decimal("-1.0000000001"), pa.decimal128(38, 10)),
        (_kind("double"), "Infinity", float("inf"), pa.float64()),
        (_kind("date"), "1953-04-22", date(1953, 4, 22), pa.date32()),
        (_kind("timestamp", 6), "1969-12-31 23:59:59.999999", FULL["wall_clock"], pa.timestamp("us")),
        (MOMENT, "2026-03-01 09:30:00.123456 UTC", FULL["moment"], UTC),
        (MOMENT, "2026-03-01 10:30:00.123456 +01:00", FULL["moment"], UTC),
        (MOMENT, "2026-07-01 11:30:00.000000 Europe/Berlin", datetime(2026, 7, 1, 9, 30, tzinfo=timezone.utc), UTC),
        (_kind("timestamp", 9), "2026-01-01 00:00:00.123456789", "2026-01-01 00:00:00.123456789", pa.string()),
        (_kind("map", _kind("integer"), _kind("char", 1)), {"1": "a"}, [(1, "a")], pa.map_(pa.int32(), pa.string())),
        (
            _kind("array", ROW),
            [[1, "AP8="], None],
            [{"a": 1, "field1": b"\x00\xff"}, None],
            pa.list_(pa.struct({"a": pa.int64(), "field1": pa.binary()})),
        ),
    ],
)
def test_trino_values_are_converted_by_type(signature: dict[str, Any], written: Any, value: Any, kind: pa.DataType) -> None:
    column = make_column(signature, [written, None])
    assert column.type == kind
    assert column.to_pylist() == [value, None]
