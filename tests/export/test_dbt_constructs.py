"""Spark SQL that `headrace check` accepts becomes a model that DuckDB runs, or an error with file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from headrace.errors import SpecError
from headrace.export.dbt_models import Dialect
from headrace.export.dbt_project import DbtProject, dbt_project
from headrace.iceberg.schema.columns import iceberg_schema
from headrace.spec import load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Pipeline
from tests.support.folders import write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id BIGINT, s STRING, arr ARRAY<BIGINT>, nested ARRAY<ARRAY<BIGINT>>, m MAP<STRING, BIGINT>, "
    "structs ARRAY<STRUCT<a: INT, b: STRING>>, st STRUCT<x: INT>, at TIMESTAMP"
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": "a,b", "arr": [10, 20], "nested": [[1], [2, 3]], "m": {"k": 5}, "structs": [{"a": 1, "b": "x"}]},
    {"id": 2, "s": "", "arr": [], "nested": [[]], "m": {}, "structs": []},
    {"id": 3, "s": None, "arr": None, "nested": None, "m": None, "structs": None},
    {"id": 4, "s": "c", "arr": [None, 7], "nested": [None, [4]], "m": {"n": None}, "structs": [{"a": None, "b": None}]},
]
RUNS = {
    "explode": "SELECT id, y FROM raw.t LATERAL VIEW explode(arr) v AS y",
    "explode outer": "SELECT id, v.y FROM raw.t LATERAL VIEW OUTER explode(arr) v AS y",
    "explode_outer": "SELECT id, y FROM raw.t LATERAL VIEW explode_outer(arr) v AS y",
    "explode without names": "SELECT id, v.col FROM raw.t LATERAL VIEW explode(arr) v",
    "explode a map": "SELECT id, k, val FROM raw.t LATERAL VIEW explode(m) v AS k, val",
    "explode a map outer": "SELECT id, k, val FROM raw.t LATERAL VIEW OUTER explode(m) v AS k, val",
    "posexplode": "SELECT id, pos, y FROM raw.t LATERAL VIEW posexplode(arr) v AS pos, y",
    "posexplode outer": "SELECT id, v.pos, v.y FROM raw.t LATERAL VIEW OUTER posexplode(arr) v AS pos, y",
    "posexplode without names": "SELECT id, v.pos, v.col FROM raw.t LATERAL VIEW posexplode(arr) v",
    "posexplode a map": "SELECT id, p, k, val FROM raw.t LATERAL VIEW posexplode(m) v AS p, k, val",
    "inline": "SELECT id, c, d FROM raw.t LATERAL VIEW inline(structs) v AS c, d",
    "inline outer": "SELECT id, v.a, v.b FROM raw.t LATERAL VIEW OUTER inline(structs) v",
    "explode structs": "SELECT id, x.a AS a FROM raw.t LATERAL VIEW explode(structs) v AS x",
    "explode twice": "SELECT id, y, z FROM raw.t LATERAL VIEW explode(arr) v AS y LATERAL VIEW OUTER explode(arr) w AS z",
    "explode what was exploded": "SELECT id, z FROM raw.t LATERAL VIEW explode(nested) v AS y "
    "LATERAL VIEW OUTER explode(y) w AS z",
    "explode an expression": "SELECT id, y FROM raw.t LATERAL VIEW explode(split(s, ',')) v AS y WHERE y <> 'b'",
    "explode after a join": "SELECT a.id, y FROM raw.t a JOIN raw.t b ON a.id = b.id LATERAL VIEW explode(b.arr) v AS y",
    "explode in a subquery": "SELECT id, n FROM (SELECT id, sum(y) AS n FROM raw.t "
    "LATERAL VIEW explode(arr) v AS y GROUP BY id) q",
    "explode in a select": "SELECT id, explode(arr) AS y FROM raw.t",
    "a hint": "SELECT /*+ BROADCAST(b) */ a.id FROM raw.t a JOIN raw.t b ON a.id = b.id",
    "semi join": "SELECT a.id FROM raw.t a LEFT SEMI JOIN raw.t b ON a.id = b.id + 1",
    "anti join": "SELECT a.id FROM raw.t a LEFT ANTI JOIN raw.t b ON a.id = b.id + 1",
    "lambdas": "SELECT id, transform(arr, x -> x + 1) AS a, filter(arr, x -> x > 10) AS b FROM raw.t",
    "a window": "SELECT id, lag(id) OVER (ORDER BY id) AS before, row_number() OVER (ORDER BY id DESC) AS n FROM raw.t",
    "rollup": "SELECT id % 2 AS k, count(*) AS n FROM raw.t GROUP BY ROLLUP (id % 2)",
    "except": "SELECT id FROM raw.t MINUS SELECT id FROM raw.t WHERE id = 1",
    "conditions": "SELECT id, if(id > 1, 'a', 'b') AS a, nvl(s, 'x') AS b, id <=> 1 AS c, nullif(id, 1) AS d FROM raw.t",
    "structs and maps": "SELECT named_struct('a', id).a AS a, m['k'] AS b, arr[0] AS c, structs[0].b AS d FROM raw.t "
    "WHERE id = 1",
    "get": "SELECT id, get(arr, 1) AS a, get(arr, id - 2) AS b, get(structs, 0).b AS c, get(get(nested, 1), 0) AS d FROM raw.t",
    "a common table": "WITH x AS (SELECT id FROM raw.t) SELECT max(id) AS n FROM x",
}
REFUSED = {
    "json_tuple": ("SELECT id, a\nFROM raw.t\nLATERAL VIEW json_tuple(s, 'a') v AS a", 3),
    "stack": ("SELECT id, y\nFROM raw.t LATERAL VIEW stack(2, 1, 2) v AS y", 2),
    "a generator in a select": ("SELECT id,\n  stack(2, 1, 'a', 2, 'b') AS (n, s)\nFROM raw.t", None),
    "a function that DuckDB lacks": ("SELECT id,\n  xxhash64(s) AS h\nFROM raw.t", 2),
    "a function with other arguments": ("SELECT id,\n  cardinality(arr) AS n\nFROM raw.t", None),
    "exists": ("SELECT id,\n  exists(arr, x -> x > 1) AS e\nFROM raw.t", None),
    "cube": ("SELECT id, s, count(*) AS n\nFROM raw.t GROUP BY id, s WITH CUBE", None),
    "from_json": ("SELECT id,\n  from_json(s, 'a INT').a AS a FROM raw.t", None),
    "explode a map without names": ("SELECT id, v.key FROM raw.t LATERAL VIEW explode(m) v", None),
}
FULL = "/* kind: full */ "
"""The settings of a table that can have any query."""
YAML = "name: mine\nabout: Constructs.\nstreams: {t: {topic: t, format: json, schema: schemas/t.sql, table: raw.t}}"


def load(folder: Path, **queries: str) -> Pipeline:
    tables = {f"marts/{name}.sql": text for name, text in queries.items()}
    write_files(folder / "pipelines/mine", {"pipeline.yml": YAML, "schemas/t.sql": SCHEMA, **tables})
    return load_pipeline("mine", environ={}, folder=folder)


def model(project: DbtProject, name: str = "made") -> str:
    """Return the SQL of a model as dbt runs it."""
    text = re.sub(r"\{#.*?#\}|\{\{ config.*?\}\}", "", project.files[f"models/marts/{name}.sql"], flags=re.DOTALL)
    return text.replace("{{ source('raw', 't') }}", "landed")


def run_in_duckdb(pipeline: Pipeline, sql: str) -> list[tuple[object, ...]]:
    schema = iceberg_schema(landed_columns(pipeline.streams[0])).as_arrow()
    rows = [{"st": None, "at": None, **row} for row in ROWS]
    landed = pa.Table.from_pylist(rows, schema=schema)
    with duckdb.connect() as connection:
        connection.register("landed", landed)
        return [tuple(map(_plain, row)) for row in connection.execute(sql).fetchall()]


def _plain(value: Any) -> object:
    return str(value)


@pytest.mark.parametrize("name", RUNS)
def test_duckdb_runs_the_model_of_a_construct(name: str, tmp_path: Path) -> None:
    pipeline = load(tmp_path, made=f"{FULL}{RUNS[name]}")
    project = dbt_project(pipeline, dialect="duckdb", home=".headrace")
    assert project.notes == ()
    run_in_duckdb(pipeline, model(project))


@pytest.mark.spark
def test_models_return_the_rows_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    columns = SCHEMA.replace("TIMESTAMP", "STRING")
    spark.createDataFrame([{"st": None, "at": None, **row} for row in ROWS], columns).createOrReplaceTempView("landed")
    different = {}
    for name, query in RUNS.items():
        pipeline = load(tmp_path, made=f"{FULL}{query}")
        rows = run_in_duckdb(pipeline, model(dbt_project(pipeline, dialect="duckdb", home=".headrace")))
        wanted = [tuple(map(_plain, row)) for row in spark.sql(query.replace("raw.t", "landed")).collect()]
        if sorted(rows) != sorted(wanted):
            different[name] = (sorted(rows), sorted(wanted))
    assert different == {}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_construct_has_file_and_line(name: str, tmp_path: Path) -> None:
    query, line = REFUSED[name]
    with pytest.raises(SpecError, match=r"DuckDB can't run|duckdb can't say") as raised:
        dbt_project(load(tmp_path, made=f"/*\nkind: full\n*/\n{query}"), dialect="duckdb", home=".headrace")
    file, _, number = raised.value.where.rpartition(":")
    assert file.endswith("marts/made.sql")
    assert int(number) == (4 if line is None else line + 3) or (line is None and int(number) > 4)


def test_unsupported_table_becomes_a_source(tmp_path: Path) -> None:
    pipeline = load(tmp_path, hashed="SELECT id, xxhash64(s) AS h FROM raw.t", made="SELECT id FROM marts.hashed")
    project = dbt_project(pipeline, dialect="duckdb", home=".headrace")
    assert "models/marts/hashed.sql" not in project.files
    assert "{{ source('marts', 'hashed') }}" in project.files["models/marts/made.sql"]
    (note,) = project.notes
    assert re.search(r"marts/hashed.sql:1: DuckDB can't run this query: .*xxhash64.*; marts.hashed is a source", note)


MACROS = """\
-- How a missing value is written.
CREATE MACRO null_words() AS array('', 'null');
CREATE MACRO clean(text) AS IF(array_contains(null_words(), lower(trim(text))), NULL, trim(text));
CREATE MACRO is_known(text) AS clean(text) IS NOT NULL;
"""
CLEANED = """\
/*
expect:
  it is known: {that: is_known(name), on_failure: drop}
  it is still known: is_known(name)
*/
SELECT
    id,
    -- As the customer wrote it.
    clean(
        s  -- may be empty
    ) AS name
FROM raw.t
"""


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_models_and_tests_expand_macros(dialect: Dialect, tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines/mine", {"macros.sql": MACROS})
    pipeline = load(tmp_path, made=CLEANED)
    project = dbt_project(pipeline, dialect=dialect, home=".headrace")
    assert project.notes == ()
    text = "".join(project.files.values())
    assert not re.search(r"\b(clean|is_known|null_words)\(", text)
    if dialect == "duckdb":
        assert sorted(run_in_duckdb(pipeline, model(project))) == [("1", "a,b"), ("4", "c")]
    else:
        expanded = "IF(array_contains(array('', 'null'), lower(trim(s))), NULL, trim(s)) AS name\nFROM"
        assert f"-- As the customer wrote it.\n    {expanded}" in project.files["models/marts/made.sql"]


def test_unsupported_macro_has_the_line_of_its_call(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines/mine", {"macros.sql": "CREATE MACRO digest(a) AS xxhash64(a);"})
    with pytest.raises(SpecError, match=r"DuckDB can't run") as raised:
        dbt_project(load(tmp_path, made="SELECT id,\n  digest(\n s\n) AS h\nFROM raw.t"), dialect="duckdb", home=".headrace")
    assert raised.value.where.endswith("marts/made.sql:2")


def test_functions_are_checked_without_input_types(tmp_path: Path) -> None:
    """The input is unsupported itself, so only Headrace knows its types."""
    pipeline = load(
        tmp_path,
        hashed="SELECT id, s, xxhash64(s) AS h FROM raw.t",
        again="SELECT id,\n  crc32(s) AS c FROM marts.hashed",
        broken=f"{FULL}SELECT id, count(*) AS n FROM marts.hashed GROUP BY id WITH CUBE",
        good="SELECT id, upper(s) AS s, coalesce(h, 0) AS h, CAST(id AS STRING) AS t FROM marts.hashed",
    )
    project = dbt_project(pipeline, dialect="duckdb", home=".headrace")
    assert [name for name in project.files if re.fullmatch(r"models/marts/\w+\.sql", name)] == ["models/marts/good.sql"]
    assert sorted(re.findall(r"(\w+)\.sql:(\d+)", " ".join(project.notes))) == [
        ("again", "2"),
        ("broken", "1"),
        ("hashed", "1"),
    ]
