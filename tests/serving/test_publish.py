"""Published tables equal a batch over the lake, with any number and timing of publications."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from headrace.app.figures import list_layer_tables
from headrace.errors import PublishError, UnavailableError
from headrace.serving.publish.publish import Published, publish
from headrace.sessions.building import build, open_lake
from headrace.spec.model.pipeline import Pipeline
from tests.support.folders import write_files
from tests.support.lake import Lake
from tests.support.topics import make_topic, produce
from tests.support.weather import START, minutes_of, published, readings, recompute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

ITEMS = {
    "pipeline.yml": """\
name: items
about: things that come, change and go
namespace: shelf
streams:
  events: {topic: items, format: json, schema: schemas/event.sql, table: shelf.events}
serving:
  postgres:
    items: {from: shelf.current, ddl: serving/items.sql}
""",
    "schemas/event.sql": "id STRING NOT NULL, note STRING, price DECIMAL(10,2), tags ARRAY<STRING>, gone BOOLEAN, n BIGINT",
    "core/current.sql": """\
/*
keys: [id]
sequence_by: n
apply_as_deletes: gone
except_column_list: [gone]
*/
SELECT id, note, price, tags, gone, n FROM shelf.events
""",
    "serving/items.sql": """\
CREATE TABLE items (id TEXT PRIMARY KEY, note VARCHAR(5), price NUMERIC(10, 2), tags JSONB, changes INT DEFAULT 1)
""",
}


def ask(dsn: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


def take(lake: Lake, spark: SparkSession, pipeline: Pipeline, values: list[bytes], *, full_refresh: bool = False) -> None:
    """Land messages and build what they change."""
    if values:
        produce(lake.servers, pipeline.streams[0].topic, values, partitions=pipeline.streams[0].partitions)
        lake.land(spark, pipeline)
    outcomes = build(open_lake(lake.settings(), pipeline, spark), full_refresh=full_refresh)
    assert [outcome.error for outcome in outcomes if outcome.error] == []


def show(lake: Lake, pipeline: Pipeline, dsn: str) -> Published | None:
    return publish(dsn, lake.catalog, pipeline.serving.postgres[0])


def with_topic(pipeline: Pipeline, topic: str) -> Pipeline:
    return replace(pipeline, streams=tuple(replace(stream, topic=topic) for stream in pipeline.streams))


def test_minutes_are_those_of_a_batch_also_for_late_readings_and_replays(
    lake: Lake, spark: SparkSession, database: str
) -> None:
    pipeline = with_topic(lake.pipeline("weather"), lake.topic)
    make_topic(lake.servers, lake.topic, partitions=2)
    assert show(lake, pipeline, database) is None  # nothing is built yet; the table is there and empty
    assert published(database) == {}
    for seed, late in ((1, 0.0), (2, 0.5)):
        take(lake, spark, pipeline, readings(400, seed=seed, late=late))
        done = show(lake, pipeline, database)
        assert done is not None
        assert done.build_id == seed
        assert published(database) == recompute(lake)
    status = list_layer_tables(lake.catalog, pipeline, now=START)[0]
    assert status.watermark is not None
    late = sum(row["event_time"] < status.watermark for row in lake.rows("default.weather", "event_time"))
    assert (status.late_rows, late > 100) == (late, True)
    assert show(lake, pipeline, database) is None
    before = ask(database, "SELECT max(last_updated) FROM weather")
    no_time = {"city": "Nowhere", "temperature": "cold", "ts": "2026-03-01-12"}
    take(lake, spark, pipeline, [json.dumps(no_time).encode(), *readings(1, seed=3)])
    with ThreadPoolExecutor(2) as pool:  # two at a time: one of them has nothing left to do
        both = list(pool.map(lambda _: show(lake, pipeline, database), range(2)))
    assert sorted(row.rows for row in both if row) == [2]
    wanted = recompute(lake)
    assert published(database) == wanted
    assert ask(database, "SELECT max(last_updated) FROM weather") > before
    assert ask(database, "SELECT count(*) FROM weather WHERE last_updated > (SELECT min(last_updated) FROM weather)")[0][0] > 1
    for lost in ("DELETE FROM headrace_published", "DELETE FROM weather; DELETE FROM headrace_published", "DROP TABLE weather"):
        ask(database, lost)
        assert show(lake, pipeline, database) is not None, lost
        assert published(database) == wanted, lost
    take(lake, spark, pipeline, [], full_refresh=True)
    done = show(lake, pipeline, database)
    assert done is not None
    assert (done.rows, done.gone) == (0, 0)  # all rows were rewritten, and none changed
    assert published(database) == wanted


@pytest.fixture
def items(lake: Lake) -> Pipeline:
    write_files(lake.folder / "pipelines" / "items", ITEMS)
    make_topic(lake.servers, lake.topic)
    return with_topic(lake.pipeline("items"), lake.topic)


def event(n: int, key: str, *, gone: bool = False, note: str | None = "new", price: str = "1.10") -> bytes:
    return json.dumps({"id": key, "note": note, "price": price, "tags": ["a", "b"], "gone": gone, "n": n}).encode()


def test_publish_deletes_rows_and_rejects_invalid_ones(
    lake: Lake, spark: SparkSession, items: Pipeline, database: str, tmp_path: Path
) -> None:
    take(lake, spark, items, [event(1, "a"), event(1, "b"), event(1, "c", note=None)])
    show(lake, items, database)
    rows = "SELECT id, note, price::text, tags::text, changes FROM items ORDER BY id"
    assert ask(database, rows)[1:] == [("b", "new", "1.10", '["a", "b"]', 1), ("c", None, "1.10", '["a", "b"]', 1)]
    ask(database, "UPDATE items SET changes = 9 WHERE id = 'b'")
    # One goes, one comes and one changes in the same build: as many rows as before, and other ones.
    take(lake, spark, items, [event(2, "a", gone=True), event(2, "b", price="2.00"), event(2, "d")])
    done = show(lake, items, database)
    assert done is not None
    assert (done.rows, done.gone) == (2, 1)
    assert [(row[0], row[2], row[4]) for row in ask(database, rows)] == [("b", "2.00", 1), ("c", "1.10", 1), ("d", "1.10", 1)]
    take(lake, spark, items, [event(3, "e"), event(3, "f", note="far too long")])
    with pytest.raises(PublishError, match="value too long") as caught:
        show(lake, items, database)
    assert caught.value.where == "table items in Postgres"
    assert [row[0] for row in ask(database, rows)] == ["b", "c", "d"]  # nothing of it
    take(lake, spark, items, [event(4, "f", note="short")])
    show(lake, items, database)
    assert [row[0] for row in ask(database, rows)] == ["b", "c", "d", "e", "f"]
    ask(database, "ALTER TABLE items ADD COLUMN colour TEXT")
    take(lake, spark, items, [event(5, "f")])
    with pytest.raises(PublishError, match=r'shelf\.current has no column "colour"'):
        show(lake, items, database)
    with pytest.raises(UnavailableError, match="Postgres is unavailable"):
        show(lake, items, "host=127.0.0.1 port=1 dbname=x user=x password=secret")


def test_reference_batch_computes_correctly() -> None:
    """Windows are half-open, null times fall back to Kafka's, and a text that is not a number counts without a value."""
    at = START.replace(second=59, microsecond=999_000)
    rows: list[dict[str, Any]] = [
        {"city": "x", "temperature": "1.5", "event_time": at, "kafka_timestamp": START},
        {"city": "x", "temperature": "oops", "event_time": None, "kafka_timestamp": at},
        {"city": "x", "temperature": "2.5", "event_time": START, "kafka_timestamp": START},
    ]
    (minute,) = minutes_of(rows).values()
    assert minute[1:] == (2.0, 3)
