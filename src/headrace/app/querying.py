"""Run SQL on the lake with one of its query engines; an engine is imported or started on first use."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from headrace.iceberg.catalog.tables import find_catalog, list_tables
from headrace.iceberg.snapshots.moments import parse_moment
from headrace.servers.embedded import Report
from headrace.serving.sql.engines.names import DIALECTS, Engine
from headrace.serving.sql.hidden_columns import split_columns
from headrace.serving.sql.query import run_query
from headrace.serving.sql.question import read_question
from headrace.settings import Settings


def query(
    settings: Settings, sql: str, *, engine: Engine = Engine.duckdb, at: str | datetime | int | None = None, report: Report
) -> pa.Table:
    """Return the result of one SELECT in the engine's SQL dialect; table names are the same in every engine.

    Tables are read as they are, or as of `at`: a time, or the id of a snapshot of the query's only table.
    Raises a QueryError for a query that is not allowed, before it starts anything.
    """
    moment = None if at is None else parse_moment(at)
    catalog = find_catalog(settings)
    if engine == Engine.duckdb:
        return run_query(catalog, sql, at=moment)
    if engine == Engine.pyiceberg:
        from headrace.serving.sql.engines import pyiceberg

        return pyiceberg.ask(catalog, sql, at=moment)
    question = split_columns(read_question(sql, dialect=DIALECTS[engine], known=list_tables(catalog)), catalog, moment)
    if engine == Engine.spark:
        from headrace.serving.sql.engines import spark
        from headrace.sessions.shared_spark import spark_session

        with spark_session(settings, report=report) as session:
            return spark.ask(question, settings=settings, spark=session)
    if engine == Engine.trino:
        from headrace.servers.trino import trino as trino_server
        from headrace.serving.sql.engines import trino

        trino.check_client()
        with trino_server(settings, report=report) as url:
            return trino.ask(question, url=url)
    if engine == Engine.clickhouse:
        from headrace.serving.sql.engines import clickhouse

        return clickhouse.ask(catalog, question)
    from headrace.serving.sql.engines import polars

    return polars.ask(catalog, question)
