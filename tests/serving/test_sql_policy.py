"""The queries that are refused in every dialect before an engine gets their text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from headrace.errors import QueryError
from headrace.serving.sql.engines.names import DIALECTS, Engine
from headrace.serving.sql.query import run_query
from headrace.serving.sql.question import read_question
from tests.serving.shop_lake import ShopLake

KNOWN = ("raw.charges", "raw.refunds")
READS = "a query can read only tables of the lake"
CHANGES = "only SELECT queries are allowed"
NOT_KNOWN = "table not found"

REFUSED = [
    (Engine.duckdb, "SELECT * FROM 'secret.csv'", NOT_KNOWN),
    (Engine.duckdb, "FROM '/etc/passwd'", NOT_KNOWN),
    (Engine.duckdb, "SELECT * FROM glob('*')", READS),
    (Engine.duckdb, "SELECT * FROM sniff_csv('x')", READS),
    (Engine.duckdb, "SELECT * FROM main.read_blob('x')", READS),
    (Engine.duckdb, "SELECT * FROM system.main.range(3)", READS),
    (Engine.duckdb, "SELECT * FROM iceberg_scan('x')", READS),
    (Engine.duckdb, "SELECT * FROM postgres_scan('x', 'y', 'z')", READS),
    (Engine.duckdb, "SELECT * FROM sqlite_scan('x', 'y')", READS),
    (Engine.duckdb, "SELECT * FROM query_table('raw.charges')", READS),
    (Engine.duckdb, "SELECT * FROM raw.charges POSITIONAL JOIN read_text('x')", READS),
    (Engine.duckdb, "SELECT (SELECT content FROM read_text('x'))", READS),
    (Engine.duckdb, "WITH a AS (FROM read_text('x')) FROM a", READS),
    (Engine.duckdb, "SELECT getenv('HEADRACE_TOKEN')", READS),
    (Engine.duckdb, "SELECT current_setting('s3_secret_access_key')", READS),
    (Engine.duckdb, "SELECT json_serialize_plan('SELECT current_setting(''home_directory'')', optimize := true)", READS),
    (Engine.duckdb, "SELECT sleep_ms(60000)", READS),
    (Engine.duckdb, "SELECT * FROM ?", READS),
    (Engine.duckdb, "SUMMARIZE 'x.csv'", READS),
    (Engine.duckdb, "SELECT * FROM (SUMMARIZE 'x.csv')", READS),
    (Engine.duckdb, "DESCRIBE 'x.csv'", NOT_KNOWN),
    (Engine.duckdb, "DESCRIBE INSERT INTO raw.charges SELECT 1", CHANGES),
    (Engine.duckdb, "WITH a AS (INSERT INTO raw.charges SELECT 1) SELECT 1", CHANGES),
    (Engine.duckdb, "SELECT 1 INTO x", CHANGES),
    (Engine.duckdb, "CALL pragma_version()", CHANGES),
    (Engine.duckdb, "PRAGMA import_database('x')", CHANGES),
    (Engine.duckdb, "SELECT 1; PRAGMA import_database('x')", "a query must be one SELECT"),
    # A CTE that can't be seen from there: the engine would look for a file of that name.
    (Engine.duckdb, 'SELECT * FROM \'x.csv\', (WITH "x.csv" AS (SELECT 1) FROM "x.csv")', NOT_KNOWN),
    (Engine.duckdb, "WITH a AS (FROM 'x.csv'), \"x.csv\" AS (SELECT 1) FROM a", NOT_KNOWN),
    (Engine.spark, "SELECT * FROM csv.`/etc/passwd`", NOT_KNOWN),
    (Engine.spark, "SELECT * FROM text.`/etc/passwd`", NOT_KNOWN),
    (Engine.spark, "SELECT * FROM read_files('/etc/passwd')", READS),
    (Engine.spark, "SELECT java_method('java.lang.System', 'getenv', 'HEADRACE_TOKEN')", READS),
    (Engine.spark, "SELECT reflect('java.lang.System', 'getenv', 'HEADRACE_TOKEN')", READS),
    (Engine.spark, "SELECT from_protobuf(n, 'Message', '/etc/passwd') FROM raw.charges", READS),
    (Engine.spark, "SELECT try_reflect('java.lang.System', 'getenv', 'HEADRACE_TOKEN')", READS),
    (Engine.spark, "SELECT TRANSFORM(n) USING 'cat' AS (m) FROM raw.charges", "a query can't run programs"),
    (Engine.spark, "SELECT * FROM raw.charges LATERAL VIEW my_udtf(n) t AS m", READS),
    (Engine.spark, "SELECT * FROM IDENTIFIER('csv.`/etc/passwd`')", READS),
    (Engine.trino, "SELECT * FROM TABLE(system.query(query => 'SELECT 1'))", READS),
    (Engine.trino, "SELECT * FROM TABLE(iceberg.system.table_changes(schema_name => 'raw'))", READS),
    (Engine.trino, "SELECT * FROM system.runtime.queries", NOT_KNOWN),
    (Engine.clickhouse, "SELECT file('/etc/passwd')", READS),
    (Engine.clickhouse, "SELECT * FROM file('x.csv')", READS),
    (Engine.clickhouse, "SELECT * FROM url('http://127.0.0.1/', CSV)", READS),
    (Engine.clickhouse, "SELECT * FROM s3('http://127.0.0.1/x', CSV)", READS),
    (Engine.clickhouse, "SELECT * FROM executable('id', CSV, 'a String', (SELECT 1))", READS),
    (Engine.clickhouse, "SELECT * FROM Python(x)", READS),
    (Engine.clickhouse, "SELECT 1 IN url('http://127.0.0.1/', CSV)", READS),
    (Engine.clickhouse, "SELECT 'default' IN system.users", READS),
    (Engine.clickhouse, "SELECT hasColumnInTable('10.0.0.1', 'user', 'word', 'a', 'b', 'c')", READS),
    (Engine.clickhouse, "SELECT dictGetString('a', 'b', 1)", READS),
    (Engine.clickhouse, "SELECT sleepEachRow(3) FROM raw.charges", READS),
    (Engine.clickhouse, "SELECT n FROM raw.charges SETTINGS max_memory_usage = 0", "settings"),
    (Engine.clickhouse, "SELECT n FROM raw.charges FORMAT CSV", "format"),
    (Engine.clickhouse, "SELECT n FROM raw.charges INTO OUTFILE '/tmp/x'", "can't be parsed"),
    (Engine.clickhouse, "SELECT notIn(1, system.users)", READS),
    # ClickHouse reads the quotes otherwise than sqlglot, for which the call is a part of a string.
    (Engine.clickhouse, "SELECT \u2018a\u2018, ' \u2019, file(\u2018x\u2019) -- '", "outside of quotes"),
    (Engine.clickhouse, "WITH 1 AS `$a` SELECT $a b$, file('x') -- $a b$", "outside of quotes"),
    (Engine.polars, "SELECT * FROM read_csv('/etc/passwd')", READS),
    (Engine.polars, "SELECT * FROM read_parquet('x')", READS),
    (Engine.polars, "SELECT * FROM ROWS FROM (read_csv('x'))", READS),
]

ALLOWED = [
    (Engine.duckdb, "SELECT * FROM range(3), generate_series(1, 2), unnest([1])"),
    (Engine.duckdb, "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 3) FROM t"),
    (Engine.duckdb, "WITH a AS (FROM raw.charges), b AS (FROM A) SELECT (SELECT count(*) FROM a) FROM b"),
    (Engine.duckdb, "SELECT * FROM raw.charges, LATERAL (SELECT 1), json_each('{}')"),
    (Engine.duckdb, "DESCRIBE raw.charges"),
    (Engine.duckdb, "SUMMARIZE raw.charges"),
    (Engine.duckdb, "SUMMARIZE SELECT n FROM raw.charges"),
    (Engine.duckdb, "SELECT * FROM (SUMMARIZE raw.charges)"),
    (Engine.duckdb, "DESCRIBE SELECT n FROM raw.charges"),
    (Engine.duckdb, "(SELECT 1) UNION ALL (SELECT 2)"),
    (Engine.duckdb, "SELECT * FROM (VALUES (1)) AS t(n) WHERE n IN (SELECT n FROM raw.charges)"),
    (Engine.duckdb, "FROM raw.charges AS a JOIN raw.refunds AS b USING (n)"),
    (Engine.spark, "SELECT * FROM raw.charges LATERAL VIEW OUTER explode(n) t AS m LATERAL VIEW posexplode(n) u AS p, q"),
    (Engine.spark, "SELECT * FROM raw.charges LATERAL VIEW inline(n) t AS m"),
    (Engine.spark, "SELECT * FROM raw.charges, LATERAL explode(n) AS t(m), range(3)"),
    (Engine.trino, "SELECT * FROM raw.charges CROSS JOIN UNNEST(n) AS t (m) CROSS JOIN TABLE(sequence(1, 3))"),
    (Engine.clickhouse, "SELECT m FROM raw.charges ARRAY JOIN n AS m WHERE m IN (1, 2) AND m IN (SELECT n FROM raw.refunds)"),
    (Engine.clickhouse, "SELECT * FROM numbers(3)"),
    (Engine.duckdb, "SELECT \u0e0a\u0e37\u0e48\u0e2d, na\u00efve FROM raw.charges"),
    (Engine.clickhouse, "SELECT '\u2018', $$a$$, $tag$ ' $tag$, `\u2019` FROM raw.charges -- \u2018"),
    (Engine.polars, "SELECT * FROM raw.charges AS a JOIN raw.refunds AS b ON a.n = b.n"),
]


@pytest.mark.parametrize(("engine", "sql", "reason"), REFUSED)
def test_statements_that_read_something_else_are_refused(engine: Engine, sql: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason) as raised:
        read_question(sql, dialect=DIALECTS[engine], known=KNOWN)
    assert raised.value.where.startswith("query")
    assert raised.value.next_step


@pytest.mark.parametrize(("engine", "sql"), ALLOWED)
def test_ordinary_queries_are_allowed(engine: Engine, sql: str) -> None:
    read_question(sql, dialect=DIALECTS[engine], known=KNOWN)


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("deep", ["(" * 9_000 + "1" + ")" * 9_000, "NOT " * 4_000 + "1", "f(" * 3_000 + "1" + ")" * 3_000])
def test_deep_nesting_is_a_query_error(engine: Engine, deep: str) -> None:
    with pytest.raises(QueryError, match="nested too deeply"):
        read_question(f"SELECT {deep}", dialect=DIALECTS[engine], known=KNOWN)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    lake = ShopLake(tmp_path_factory.mktemp("policy"))
    lake.land(["a"])
    return lake.catalog


@pytest.mark.parametrize("beginning", ["", "SELECT 1; ", "/* a /* comment */ SELECT 1; */ ", "SELECT '\\'; -- ';\n"])
def test_import_database_never_reaches_the_parser(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    """DuckDB expands the pragma while it parses: it opens schema.sql, and would wait for ever for a FIFO's writer."""
    os.mkfifo(tmp_path / "schema.sql")
    (tmp_path / "load.sql").write_text("")
    monkeypatch.setattr("headrace.serving.sql.duck_query.open_duckdb", _must_not_open)
    with pytest.raises(QueryError):
        run_query(catalog, f"{beginning}PRAGMA import_database('{tmp_path}')")


def _must_not_open(**_: object) -> None:
    raise AssertionError("DuckDB was opened for a statement that is refused")


def test_variables_of_the_program_are_not_tables(catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="table not found"):
        run_query(catalog, "SELECT * FROM known")


def test_syntax_errors_have_the_place_that_duckdb_names(catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        run_query(catalog, "SELECT id\nFROM raw.charges WHERE WHERE")
    assert raised.value.where.startswith("query:2:")
