"""The engines that read the lake, as `headrace query --engine` calls them."""

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
"""How sqlglot reads the SQL that an engine takes. It knows none of Polars's; the engine runs the query as it was asked."""
