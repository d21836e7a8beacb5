"""A prepared query returns the same rows as a query that Spark plans for these rows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DecimalType, StringType, StructType

from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.settings import load_settings
from headrace.spark import prepared_queries
from headrace.spark.arrow import collect_prepared, from_arrow, to_arrow
from headrace.spark.prepared_queries import Placeholder, bind, derive, make_placeholder, run_here

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ORDERS = (
    StructType()
    .add("id", "string")
    .add("person", "string")
    .add("amount", DecimalType(10, 2))
    .add("tags", ArrayType(StringType()))
)
PEOPLE = StructType().add("person", "string").add("name", "string").add("boss", "string")

QUERIES = {
    "projection": "SELECT id, amount * 2 AS twice, size(tags) AS tags FROM {orders} WHERE amount > 1",
    "join": "SELECT o.id, p.name FROM {orders} o LEFT JOIN {people} p USING (person)",
    "self join": "SELECT p.name, b.name AS boss FROM {people} p JOIN {people} b ON b.person = p.boss",
    "the same join twice": "SELECT o.id, p.name, q.name AS again FROM {orders} o "
    "LEFT JOIN {people} p ON p.person = o.person LEFT JOIN {people} q ON q.person = o.person",
    "aggregate": "SELECT person, count(*) AS orders, sum(amount) AS total FROM {orders} GROUP BY person",
    "window": "SELECT id, sum(amount) OVER (PARTITION BY person ORDER BY id) AS running FROM {orders}",
    "union": "SELECT id AS any FROM {orders} UNION ALL SELECT person FROM {people}",
    "distinct and limit": "SELECT count(*) AS n FROM (SELECT DISTINCT person FROM {orders} LIMIT 3)",
    "no rows of one input": "SELECT o.id FROM {orders} o WHERE o.person NOT IN ('1')",
    "exists": "SELECT id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {people} p WHERE p.person = o.person)",
    "scalar subquery": "SELECT id, (SELECT count(*) FROM {people}) AS people FROM {orders}",
    "not in subquery": "SELECT id FROM {orders} WHERE person NOT IN (SELECT person FROM {people} WHERE person IS NOT NULL)",
}


@pytest.fixture(params=["interpreted", "compiled"])
def session(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> SparkSession:
    session = open_spark_catalog(spark, load_settings(flags={}, environ={}, folder=tmp_path), rows="few")
    if request.param == "compiled":
        session.conf.set("spark.sql.codegen.wholeStage", "true")
        session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    return session


def orders(count: int, *, first: int = 0) -> pa.Table:
    rows = [
        {"id": str(n), "person": None if n % 5 == 4 else str(n % 3), "amount": Decimal(n) / 4, "tags": ["a"] * (n % 4)}
        for n in range(first, first + count)
    ]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(ORDERS))


def people(count: int) -> pa.Table:
    rows = [{"person": str(number), "name": f"name {number}", "boss": str(number // 2)} for number in range(count)]
    return pa.Table.from_pylist(rows, schema=to_arrow_schema(PEOPLE))


def sorted_rows(rows: DataFrame) -> list[dict[str, object]]:
    return sorted(to_arrow(rows).to_pylist(), key=str)


class Prepared:
    """A query on placeholders for orders and people."""

    def __init__(self, session: SparkSession, text: str) -> None:
        self.session = session
        self.slots = {"orders": make_placeholder(session, ORDERS), "people": make_placeholder(session, PEOPLE)}
        self.text = text
        self.frame = self.derive(self.run)

    def run(self, orders: DataFrame, people: DataFrame) -> DataFrame:
        return self.session.sql(self.text, orders=orders, people=people)

    def derive(self, run: Callable[..., DataFrame]) -> DataFrame:
        return derive(self.slots["orders"].frame, "query", run, self.slots["people"].frame)

    def bind(self, relations: dict[str, DataFrame]) -> DataFrame:
        rows = {self.slots[name].id: relation for name, relation in relations.items()}
        return bind(self.frame, rows.__getitem__)

    def collect(self, relations: dict[str, DataFrame]) -> pa.Table:
        rows = {self.slots[name].id: relation for name, relation in relations.items()}
        return collect_prepared(self.frame, rows.__getitem__)

    def is_local(self, relations: dict[str, DataFrame], path: Path) -> bool:
        rows = {self.slots[name].id: relation for name, relation in relations.items()}
        return run_here(self.frame, rows.__getitem__, str(path))


@pytest.mark.parametrize("name", QUERIES)
def test_prepared_query_equals_spark(session: SparkSession, name: str) -> None:
    prepared = Prepared(session, QUERIES[name])
    same = from_arrow(session, people(3), PEOPLE)
    for given, looked_up in ((orders(7), same), (orders(0), same), (orders(20, first=3), None), (orders(5), same)):
        relations = {
            "orders": from_arrow(session, given, ORDERS),
            "people": looked_up or from_arrow(session, people(9), PEOPLE),
        }
        expected = prepared.run(**{name: frame.coalesce(1) for name, frame in relations.items()})
        bound = prepared.bind(relations)
        assert bound.schema == expected.schema
        wanted = sorted_rows(expected)
        assert sorted_rows(bound) == wanted, given.num_rows
        assert sorted(prepared.collect(relations).to_pylist(), key=str) == wanted, given.num_rows


def test_rows_that_spark_keeps_as_arrow_are_read(session: SparkSession) -> None:
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "100B")
    for name in ("join", "scalar subquery"):
        prepared = Prepared(session, QUERIES[name])
        for count in (9, 30):
            relations = {"orders": from_arrow(session, orders(count), ORDERS), "people": from_arrow(session, people(8), PEOPLE)}
            wanted = sorted_rows(prepared.run(**relations))
            assert sorted_rows(prepared.bind(relations)) == wanted
            assert sorted(prepared.collect(relations).to_pylist(), key=str) == wanted


def test_clock_is_read_at_each_run(session: SparkSession) -> None:
    prepared = Prepared(session, "SELECT current_timestamp() AS now FROM {orders}")
    relations = {"orders": from_arrow(session, orders(1), ORDERS), "people": from_arrow(session, people(1), PEOPLE)}
    first, second = (to_arrow(prepared.bind(relations))["now"][0].as_py() for _ in range(2))
    assert first < second


def test_frames_are_derived_once_from_placeholders_and_each_time_from_rows(session: SparkSession) -> None:
    slot: Placeholder = make_placeholder(session, PEOPLE)
    assert derive(slot.frame, "names", lambda rows: rows.select("name")) is derive(slot.frame, "names", lambda rows: rows)
    rows = from_arrow(session, people(2), PEOPLE)
    assert derive(rows, "names", lambda rows: rows.select("name")) is not derive(
        rows, "names", lambda rows: rows.select("name")
    )
    nothing: dict[int, DataFrame] = {}
    assert bind(rows, nothing.__getitem__) is rows


def test_prepared_query_without_rows_is_refused(session: SparkSession) -> None:
    slot = make_placeholder(session, PEOPLE)
    with pytest.raises(Py4JJavaError, match="a prepared query was run without rows"):
        slot.frame.collect()


@pytest.mark.parametrize("name", QUERIES)
def test_only_subqueries_in_expressions_and_the_clock_need_a_job(session: SparkSession, tmp_path: Path, name: str) -> None:
    prepared = Prepared(session, QUERIES[name])
    relations = {"orders": from_arrow(session, orders(5), ORDERS), "people": from_arrow(session, people(2), PEOPLE)}
    assert prepared.is_local(relations, tmp_path / "rows") == (name != "scalar subquery")


def test_plan_with_an_unknown_operator_needs_a_job(session: SparkSession, tmp_path: Path) -> None:
    prepared = Prepared(session, "SELECT TRANSFORM(id) USING 'cat' AS (id) FROM {orders}")
    relations = {"orders": from_arrow(session, orders(5), ORDERS), "people": from_arrow(session, people(2), PEOPLE)}
    assert not prepared.is_local(relations, tmp_path / "rows")
    assert sorted(prepared.collect(relations)["id"].to_pylist()) == ["0", "1", "2", "3", "4"]


def test_many_rows_come_in_several_batches(session: SparkSession) -> None:
    prepared = Prepared(session, "SELECT id, row_number() OVER (ORDER BY id) AS n FROM {orders}")
    relations = {"orders": from_arrow(session, orders(25_000), ORDERS), "people": from_arrow(session, people(1), PEOPLE)}
    rows = prepared.collect(relations)
    assert rows["n"].num_chunks == 3
    assert sorted(rows["n"].to_pylist()) == list(range(1, 25_001))
    assert rows.sort_by("n")["id"].to_pylist() == sorted(rows["id"].to_pylist())


def test_cached_blocks_are_evicted_for_a_query(session: SparkSession) -> None:
    prepared = Prepared(session, QUERIES["aggregate"])
    relations = {"orders": from_arrow(session, orders(10), ORDERS), "people": from_arrow(session, people(1), PEOPLE)}
    answer = prepared.collect(relations)
    jvm = session._jvm
    assert jvm is not None
    memory = jvm.org.apache.spark.SparkEnv.get().memoryManager()
    on_heap = jvm.org.apache.spark.memory.MemoryMode.ON_HEAP
    block = jvm.org.apache.spark.storage.TestBlockId("whatever else is cached")
    cached = session.range(0, 8, 1, 8).selectExpr("repeat('x', 16000000) AS text").persist()
    try:
        cached.count()
        rest = memory.maxOnHeapStorageMemory() - memory.storageMemoryUsed()
        assert memory.acquireStorageMemory(block, rest, on_heap)
        try:
            assert prepared.collect(relations) == answer
        finally:
            memory.releaseStorageMemory(rest, on_heap)
    finally:
        cached.unpersist()


def test_local_task_ids_differ_from_spark_task_ids(session: SparkSession) -> None:
    prepared = Prepared(session, QUERIES["aggregate"])
    prepared.collect({"orders": from_arrow(session, orders(1), ORDERS), "people": from_arrow(session, people(1), PEOPLE)})
    jvm = session._jvm
    assert jvm is not None
    loader = prepared_queries._java(session.sparkContext).getClass().getClassLoader()
    field = loader.loadClass("headrace.LocalExecution").getDeclaredField("LAST_TASK")
    field.setAccessible(True)
    last: int = field.get(None)  # py4j turns every number into one of Python
    assert last < jvm.org.apache.spark.storage.BlockInfo.NON_TASK_WRITER() < 0, "ids go down from here"


def test_prepared_query_is_usable_after_a_spark_error(session: SparkSession) -> None:
    total = "sum(amount) OVER (PARTITION BY person ORDER BY id)"
    prepared = Prepared(session, f"SELECT id, {total} + if(id = '3', raise_error('no three'), 0) AS n FROM {{orders}}")
    people_rows = from_arrow(session, people(1), PEOPLE)
    for _ in range(3):
        with pytest.raises(PySparkException, match="no three"):
            prepared.collect({"orders": from_arrow(session, orders(5), ORDERS), "people": people_rows})
        assert prepared.collect({"orders": from_arrow(session, orders(3), ORDERS), "people": people_rows}).num_rows == 3
    manager = session._jvm.org.apache.spark.SparkEnv.get().memoryManager()  # type: ignore[union-attr]
    assert manager.executionMemoryUsed() == 0
