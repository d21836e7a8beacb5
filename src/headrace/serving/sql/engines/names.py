"""The names of the query engines, as in `headrace query --engine`."""

from __future__ import annotations

from enum import Enum


class Engine(str, Enum):
    duckdb = "duckdb"
    spark = "spark"
    trino = "trino"
    clickhouse = "clickhouse"
    pyiceberg = "pyiceberg"
    polars = "polars"


DIALECTS = {
    Engine.duckdb: "duckdb",
    Engine.spark: "spark",
    Engine.trino: "trino",
    Engine.clickhouse: "clickhouse",
    Engine.pyiceberg: "duckdb",
    Engine.polars: "postgres",
}
"""The sqlglot dialect for each engine's SQL. sqlglot has none for Polars; the engine runs the original text."""
