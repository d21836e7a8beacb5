"""What each engine makes of a table, in one form that can be compared: rows in any order, types by their names.

Engines that can't tell some things apart are known here, one by one, and docs/reference/tables.md says the same of them.
What they should see is the truth less that; so an engine that learns it makes a test fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyiceberg.catalog import Catalog

from headrace.iceberg.catalog.spark import open_spark_catalog, spark_name
from headrace.iceberg.catalog.tables import count_rows, list_tables
from headrace.iceberg.files.spark_files import load_java_table
from headrace.iceberg.snapshots.moments import Moment
from headrace.serving.sql.engines import clickhouse, polars, pyiceberg, trino
from headrace.serving.sql.engines.names import DIALECTS, Engine
from headrace.serving.sql.hidden_columns import split_columns
from headrace.serving.sql.query import run_query
from headrace.serving.sql.question import Question, read_question
from headrace.spark.active_session import use_session
from headrace.spark.arrow import to_arrow
from headrace.spec.model.layers import STATE
from headrace.spec.model.pipeline import TableName
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Seen = tuple[dict[str, str], list[str]]
"""A table's columns with their types, and its rows in an order of their own."""


class Ask(Protocol):
    """Return what an engine answers to a query, of tables as they are or as of a moment."""

    def __call__(self, catalog: Catalog, sql: str, *, at: Moment | None = None) -> pa.Table: ...


IN_PROCESS: Mapping[Engine, Ask] = {
    Engine.duckdb: run_query,
    Engine.pyiceberg: pyiceberg.ask,
    Engine.polars: lambda catalog, sql, *, at=None: polars.ask(catalog, ask_of(catalog, sql, Engine.polars, at=at)),
    Engine.clickhouse: lambda catalog, sql, *, at=None: clickhouse.ask(catalog, ask_of(catalog, sql, Engine.clickhouse, at=at)),
}
"""The engines that need nothing but this process."""


def check_engines(catalog: Catalog, truth: Mapping[str, pa.Table]) -> None:
    """Hold what every engine in this process reads of these tables against the truth."""
    check_same(Engine.duckdb, truth, read_at_once(catalog, list(truth)))
    for engine, ask in IN_PROCESS.items():
        if engine != Engine.duckdb:
            check_same(engine, truth, {name: ask(catalog, f"SELECT * FROM {name}") for name in truth})


def check_trino(url: str, catalog: Catalog, truth: Mapping[str, pa.Table]) -> None:
    """Hold what the Trino at this address reads of these tables against the truth."""
    asked = {name: ask_of(catalog, f"SELECT * FROM {name}", Engine.trino) for name in truth}
    check_same(Engine.trino, truth, {name: trino.ask(question, url=url) for name, question in asked.items()})


def change_by_hand(lake: Lake, spark: SparkSession) -> None:
    """Delete the first row of each file of the two largest tables by position, and compact the second and the third."""
    session = open_spark_catalog(spark, lake.settings())
    use_session(session)
    rows = {name: count_rows(lake.table(name)) for name in list_tables(lake.catalog)}
    by_size = sorted((name for name, count in rows.items() if count > 1), key=lambda name: -rows[name])
    for name in by_size[:2]:
        table = spark_name(TableName.parse(name))
        session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        session.sql(f"DELETE FROM {table} WHERE abs(_pos) = 0")
        assert lake.table(name).inspect.delete_files().num_rows > 0
    for name in by_size[1:3]:
        before = lake.table(name).current_snapshot()
        actions = session._jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)  # type: ignore[union-attr]
        actions.rewriteDataFiles(load_java_table(session, TableName.parse(name))).option("rewrite-all", "true").execute()
        assert lake.table(name).current_snapshot() != before


def read_with_spark(lake: Lake, spark: SparkSession) -> dict[str, pa.Table]:
    """Return all tables as Spark reads them, which does it with Iceberg's own code, without the states of aggregates."""
    session = open_spark_catalog(spark, lake.settings(), rows="few")
    names = list_tables(lake.catalog)
    return {name: to_arrow(session.table(spark_name(TableName.parse(name))).drop(STATE)) for name in names}


def check_same(engine: Engine, truth: Mapping[str, pa.Table], tables: Mapping[str, pa.Table]) -> None:
    for name, table in truth.items():
        (types, rows), (true_types, true_rows) = see(engine, tables[name]), see(engine, table)
        assert types.items() - true_types.items() == true_types.items() - types.items() == set(), (engine, name)
        differing = [pair for pair in zip(rows, true_rows, strict=True) if pair[0] != pair[1]]
        assert differing == [], (engine, name)


def read_at_once(catalog: Catalog, names: Sequence[str]) -> dict[str, pa.Table]:
    """Return tables as DuckDB reads them in one query, each as a list of its rows: its start takes longer than reading."""
    listed = ", ".join(f'(SELECT list(t) FROM {name} AS t) AS "{name}"' for name in names)
    answer = run_query(catalog, f"SELECT {listed}")
    return {name: pa.Table.from_struct_array(answer[name].combine_chunks().flatten()) for name in names}


def see(engine: Engine, table: pa.Table) -> Seen:
    """Return a table as this engine can see it."""
    types = {field.name: _type_of(engine, field.type) for field in table.schema}
    columns = [[_value_of(engine, field.type, value) for value in table[field.name].to_pylist()] for field in table.schema]
    return types, sorted(map(repr, zip(*columns, strict=True)))


def ask_of(catalog: Catalog, sql: str, engine: Engine, *, at: Moment | None = None) -> Question:
    """Return the question of a query for an engine, of tables as they are or as of a moment."""
    return split_columns(read_question(sql, dialect=DIALECTS[engine], known=list_tables(catalog)), catalog, at)


def _type_of(engine: Engine, kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        key, item = _type_of(engine, kind.key_type), _type_of(engine, kind.item_type)
        return f"list<struct<key: {key}, value: {item}>>" if engine == Engine.polars else f"map<{key}, {item}>"
    if _is_list(kind):
        return f"list<{_type_of(engine, kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_type_of(engine, field.type)}' for field in kind)}>"
    if engine == Engine.clickhouse and (_is_text(kind) or _is_bytes(kind)):
        return "text or bytes"
    if engine == Engine.clickhouse and kind == pa.timestamp("us"):
        return str(pa.timestamp("us", "UTC"))
    if _is_text(kind):
        return "text"
    return "bytes" if _is_bytes(kind) else str(kind)


def _value_of(engine: Engine, kind: pa.DataType, value: Any) -> Any:
    """Return a value as this engine can see it: every decimal with all its places, every moment in UTC."""
    if pa.types.is_map(kind):
        if value is None and (engine == Engine.clickhouse or _is_lost_by(engine, kind.item_type)):
            return []
        pairs = None if value is None else [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in value]
        return pairs and sorted(
            (_value_of(engine, kind.key_type, key), _value_of(engine, kind.item_type, item)) for key, item in pairs
        )
    if _is_list(kind):
        if value is None and (engine == Engine.clickhouse or _is_lost_by(engine, kind.value_type)):
            return []
        return value if value is None else [_value_of(engine, kind.value_type, item) for item in value]
    if pa.types.is_struct(kind):
        if value is None and engine != Engine.clickhouse:
            return None
        fields = {field.name: _default_of(field) for field in kind} if value is None else value
        return tuple((field.name, _value_of(engine, field.type, fields.get(field.name))) for field in kind)
    if isinstance(value, datetime):
        if engine == Engine.clickhouse and value.tzinfo is None:
            return value.replace(tzinfo=timezone.utc)
        return value.astimezone(timezone.utc) if value.tzinfo else value
    if isinstance(value, str) and engine == Engine.clickhouse:
        return value.encode()
    return str(value) if isinstance(value, Decimal) else value


def _is_lost_by(engine: Engine, element: pa.DataType) -> bool:
    """PyIceberg reads a null list or map of structs, at any depth, as an empty one."""
    if engine != Engine.pyiceberg:
        return False
    if pa.types.is_map(element):
        return _is_lost_by(engine, element.item_type)
    return pa.types.is_struct(element) or (_is_list(element) and _is_lost_by(engine, element.value_type))


def _default_of(field: pa.Field) -> Any:
    """Return what ClickHouse has in a field of a null struct: its structs are never null, and neither is a required field."""
    if field.nullable or pa.types.is_nested(field.type):
        return None
    if _is_text(field.type) or _is_bytes(field.type):
        return "" if _is_text(field.type) else b""
    zero = Decimal(0) if pa.types.is_decimal(field.type) else False if pa.types.is_boolean(field.type) else 0
    return pa.scalar(zero, field.type).as_py()


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
