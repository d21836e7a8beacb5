"""No engine returns the states of aggregates, while other columns with such names are returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace.errors import PublishError
from headrace.iceberg.catalog.tables import ensure_table, list_tables, open_catalog, table_location
from headrace.iceberg.ledgers.build import KEY, BuildLedger
from headrace.serving.publish.postgres_table import PostgresColumn, TableShape
from headrace.serving.publish.publish import _published_columns
from headrace.serving.sql.engines.names import DIALECTS, Engine
from headrace.serving.sql.engines.spark import ask as ask_spark
from headrace.serving.sql.engines.trino import _quote, _quote_column
from headrace.serving.sql.hidden_columns import drop_hidden, list_columns, split_columns
from headrace.serving.sql.question import Question, read_question
from headrace.serving.web.table_facts import read_sample
from headrace.settings import Settings, load_settings
from headrace.spec import Column, Primitive, TableName
from headrace.spec.model.layers import BUILD_ID, CARRIED, STATE
from headrace.spec.model.pipeline import PostgresTable
from tests.support.engine_rows import IN_PROCESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT, LONG = Primitive("string"), Primitive("long")
BUILT = BuildLedger(build_id=1, added_columns=(BUILD_ID, CARRIED, STATE))

JOINED = "SELECT * FROM gold.stats AS a JOIN gold.days AS b ON a.g = b.d"
ANSWERS = {
    "SELECT * FROM gold.stats": [["x", 3, 1]],
    "SELECT * FROM gold.stats WHERE g <> 'shipping_state'": [["x", 3, 1]],
    "SELECT s.* FROM gold.stats AS s": [["x", 3, 1]],
    "WITH stats AS (SELECT * FROM gold.stats) SELECT * FROM stats": [["x", 3, 1]],
    "SELECT gold.stats.g, stats.n FROM gold.stats": [["x", 3]],
    "SELECT o.shipping_state, s.* FROM raw.orders AS o JOIN gold.stats AS s ON o.g = s.g": [["NY", "x", 3, 1]],
    "SELECT o._state FROM raw.orders AS o JOIN gold.stats AS s ON o.g = s.g": [["open"]],
    "SELECT * FROM raw.orders": [["x", "NY", "open"]],
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load_settings(flags={}, environ={}, folder=tmp_path_factory.mktemp("hidden"))


@pytest.fixture(scope="module")
def catalog(settings: Settings) -> Catalog:
    """A raw table with its own column `_state`, and two aggregates that store states."""
    catalog = open_catalog(settings)
    fill(settings, catalog, TableName("raw", "orders"), {"g": "x", "shipping_state": "NY", STATE: "open"})
    for name, key in (("stats", "g"), ("days", "d")):
        fill(settings, catalog, TableName("gold", name), {key: "x", "n": 3, STATE: '{"v":"1"}', BUILD_ID: 1}, ledger=BUILT)
    return catalog


def fill(
    settings: Settings, catalog: Catalog, name: TableName, row: dict[str, Any], *, ledger: BuildLedger | None = None
) -> None:
    columns = tuple(Column(column, TEXT if isinstance(value, str) else LONG) for column, value in row.items())
    table = ensure_table(catalog, name, columns=columns, location=table_location(settings, name))
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    if ledger:
        table.transaction().set_properties({KEY: ledger.to_json()}).commit_transaction()


def ask_of(catalog: Catalog, sql: str, engine: Engine) -> Question:
    return split_columns(read_question(sql, dialect=DIALECTS[engine], known=list_tables(catalog)), catalog)


def rows_of(result: pa.Table) -> list[list[Any]]:
    return [list(row) for row in zip(*(column.to_pylist() for column in result.columns), strict=True)]


@pytest.mark.parametrize("engine", IN_PROCESS)
@pytest.mark.parametrize("sql", ANSWERS)
def test_engine_shows_no_states(catalog: Catalog, engine: Engine, sql: str) -> None:
    assert rows_of(IN_PROCESS[engine](catalog, sql)) == ANSWERS[sql]


@pytest.mark.parametrize("engine", IN_PROCESS)
def test_engine_shows_no_states_of_two_joined_aggregates(catalog: Catalog, engine: Engine) -> None:
    result = IN_PROCESS[engine](catalog, JOINED)
    assert not [name for name in result.column_names if STATE in name]
    assert rows_of(result)[0][:3] == ["x", 3, 1]


@pytest.mark.parametrize("engine", [Engine.duckdb, Engine.pyiceberg, Engine.clickhouse])
def test_engine_describes_no_states(catalog: Catalog, engine: Engine) -> None:
    result = IN_PROCESS[engine](catalog, "DESCRIBE gold.stats")
    assert result.column(0).to_pylist() == ["g", "n", BUILD_ID]


@pytest.mark.spark
def test_spark_shows_no_states(catalog: Catalog, settings: Settings, spark: SparkSession) -> None:
    def ask(sql: str) -> pa.Table:
        return ask_spark(ask_of(catalog, sql, Engine.spark), settings=settings, spark=spark)

    for sql, rows in ANSWERS.items():
        assert rows_of(ask(sql)) == rows, sql
    assert ask(JOINED).column_names == ["g", "n", BUILD_ID, "d", "n", BUILD_ID]
    assert ask("DESCRIBE gold.stats").column(0).to_pylist() == ["g", "n", BUILD_ID]
    snapshot = catalog.load_table("gold.stats").current_snapshot()
    assert snapshot is not None
    shown = ["g", "n", BUILD_ID]
    assert ask(f"SELECT * FROM gold.stats VERSION AS OF {snapshot.snapshot_id}").column_names == shown
    assert ask("SELECT * FROM gold.stats TABLESAMPLE (100 PERCENT)").column_names == shown
    assert ask("SELECT * FROM gold.stats TABLESAMPLE (100 PERCENT) AS s").column_names == shown
    assert ask("WITH stats AS (SELECT 1 AS one) SELECT s.* FROM gold.stats AS s, stats").column_names == shown


def test_trino_is_asked_for_the_shown_columns(catalog: Catalog) -> None:
    def asked(sql: str) -> str:
        question = ask_of(catalog, sql, Engine.trino)
        return list_columns(question, name=lambda mention: _quote(mention.table), quote=_quote_column)

    listed = '(SELECT "g", "n", "_build_id" FROM "gold"."stats")'
    assert asked("SELECT gold.stats.n FROM gold.stats") == f'SELECT "stats".n FROM {listed} AS "stats"'
    assert asked("SELECT * FROM gold.stats AS s, raw.orders") == f'SELECT * FROM {listed} AS s, "raw"."orders"'
    assert (
        asked("SELECT * FROM gold.stats s TABLESAMPLE BERNOULLI (9)") == f"SELECT * FROM {listed} s TABLESAMPLE BERNOULLI (9)"
    )
    for query in ("DESCRIBE {}", "TABLE {}", "SELECT * FROM {} FOR VERSION AS OF 1"):
        assert asked(query.format("gold.stats")) == query.format('"gold"."stats"')


def test_result_has_no_states_if_a_name_is_not_replaced(catalog: Catalog) -> None:
    question = ask_of(
        catalog, "SELECT * FROM gold.stats FOR VERSION AS OF 1 AS a JOIN gold.days AS b ON a.g = b.d", Engine.trino
    )
    result = pa.table([pa.array([value]) for value in ("x", "{}", "y", "{}")], names=["g", STATE, "d", STATE])
    assert drop_hidden(result, question).column_names == ["g", "d"]
    described = drop_hidden(pa.table({"Column": ["g", STATE]}), ask_of(catalog, "DESCRIBE gold.stats", Engine.trino))
    assert described.to_pylist() == [{"Column": "g"}]


def test_sample_of_a_page_shows_no_states(catalog: Catalog) -> None:
    answer = read_sample(catalog.load_table("gold.stats"))
    assert answer is not None
    assert [name for name, _ in answer.columns] == ["g", "n", BUILD_ID]


@pytest.mark.parametrize(("source", "published"), [("gold.stats", False), ("raw.orders", True)])
def test_publishing_knows_no_states(catalog: Catalog, source: str, published: bool) -> None:
    stored = catalog.load_table(source)
    table = PostgresTable("shown", TableName.parse(source), "CREATE TABLE shown ()", ("g", STATE), ("g",))
    shape = TableShape((PostgresColumn("g", "text"), PostgresColumn(STATE, "text")), ("g",))
    if published:
        assert [column.name for column in _published_columns(shape, stored, table)] == ["g", STATE]
        return
    with pytest.raises(PublishError) as raised:
        _published_columns(shape, stored, table)
    assert raised.value.what == f'gold.stats has no column "{STATE}"'
    assert str(raised.value.next_step).startswith("Columns are: g, n. ")
