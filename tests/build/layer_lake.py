"""A small lake for layer builds: one raw table that a test fills row by row, and a table of every kind on top of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.build.lake import Lake
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.schema.widening import widen_table
from headrace.sessions.building import Outcome, build, open_lake
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import BUILD_ID, STATE
from headrace.spec.model.types import Column
from headrace.testing.raw_tables import append_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=timezone.utc)

PIPELINE = """\
name: pond
about: One stream and a table of every kind.
namespace: pond
streams:
  events: {topic: pond-events, format: json, schema: schemas/event.sql, table: pond.events}
"""
SCHEMA = "id STRING, k STRING, g STRING, n INT, amount DECIMAL(10, 2), op STRING, at TIMESTAMP, tags MAP<STRING, STRING>"

CHECKED = """/*
keys: [id]
sequence_by: n
expect:
  amount is positive: {{that: amount > 0, on_failure: {on_failure}}}
  the group is known: g IS NOT NULL
*/
SELECT id, n, g, amount FROM pond.events"""
READER = """/*
keys: [g]
*/
SELECT g, count(*) AS events FROM pond.checked GROUP BY g"""
"""A table with expectations, and one that reads it."""

TABLES = {
    "a/appended.sql": "SELECT id, k, g, amount * 2 AS doubled, at FROM pond.events WHERE n IS NOT NULL",
    "a/latest.sql": """/*
keys: [k]
sequence_by: n
*/
SELECT k, n, g, amount, at, tags FROM pond.events""",
    "a/by_event.sql": """/*
keys: [id]
sequence_by: n
constant: [at]
partition_by: [days(at)]
*/
SELECT id, k, g, n, amount, at FROM pond.events""",
    "a/present.sql": """/*
keys: [k]
sequence_by: n
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT k, n, g, amount, op FROM pond.events""",
    "a/versions.sql": """/*
keys: [k]
sequence_by: n
stored_as_scd_type: 2
*/
SELECT k, n, g, amount FROM pond.events""",
    "a/versions_with_deletes.sql": """/*
keys: [k]
sequence_by: n
stored_as_scd_type: 2
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT k, n, g, op FROM pond.events""",
    "a/group_changes.sql": """/*
keys: [k]
sequence_by: n
stored_as_scd_type: 2
track_history_except_column_list: [amount]
*/
SELECT k, n, g, amount FROM pond.events""",
    "b/daily.sql": """/*
keys: [g, day]
*/
SELECT g, CAST(at AS DATE) AS day, count(*) AS events, sum(amount) AS amount FROM pond.by_event GROUP BY g, CAST(at AS DATE)""",
    "b/groups.sql": """/*
keys: [g]
*/
SELECT g, count(*) AS keys, max(n) AS newest, sum(amount) AS amount FROM pond.latest GROUP BY g""",
    "b/still_there.sql": """/*
keys: [g]
*/
SELECT g, count(*) AS keys FROM pond.present GROUP BY g""",
    "b/looked_up.sql": """/*
keys: [k]
rebuild_on: {pond.groups: [g]}
*/
SELECT l.k, l.g, l.n, s.keys AS keys_in_group, s.amount AS amount_of_group
FROM pond.latest l LEFT JOIN pond.groups s ON s.g = l.g""",
    "b/by_size.sql": """/*
keys: [size]
*/
SELECT s.keys AS size, count(*) AS members, sum(l.amount) AS amount
FROM pond.latest l JOIN pond.groups s ON s.g = l.g WHERE s.keys > 1 GROUP BY s.keys""",
    "b/chained.sql": """/*
keys: [id]
*/
SELECT e.id, l.n AS newest, s.keys AS keys_in_group
FROM pond.by_event e LEFT JOIN pond.latest l ON l.k = e.k LEFT JOIN pond.groups s ON s.g = l.g""",
    "b/with_group.sql": """/*
keys: [id]
sequence_by: n
*/
SELECT e.id, e.n, s.newest AS newest_in_group, p.k AS key_of_number
FROM pond.events e LEFT JOIN pond.groups s ON s.g = e.g LEFT JOIN pond.as_text p ON p.number = CAST(e.n AS STRING)""",
    "b/as_text.sql": """/*
keys: [number]
*/
SELECT CAST(n AS STRING) AS number, max(k) AS k, count(*) AS events FROM pond.by_event GROUP BY CAST(n AS STRING)""",
    "b/rolling.sql": """/*
keys: [id]
window: {partition_by: [k], order_by: at, range: 1 hour}
*/
SELECT id, k, at, count(*) OVER w AS events_1h, sum(amount) OVER w AS amount_1h
FROM pond.by_event
WINDOW w AS (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)""",
    "b/both.sql": """/*
keys: [key]
sequence_by: n
*/
SELECT concat('l', k) AS key, n, amount FROM pond.latest
UNION ALL
SELECT concat('e', id) AS key, n, amount FROM pond.by_event""",
    "c/totals.sql": """/*
kind: full
*/
SELECT count(*) AS keys, sum(amount) AS amount FROM pond.latest""",
    "c/by_python.py": '''from headrace import table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@table(keys=["g"])
def by_python(latest: DataFrame) -> DataFrame:
    """The largest amount of every group."""
    return latest.groupBy("g").agg(F.max("amount").alias("largest"))
''',
}

AGGREGATES = {
    "d/group_stats.sql": """/*
keys: [g]
*/
SELECT g, count(*) AS keys, count_if(n > 9) AS late_keys, avg(amount) AS average, avg(n) AS average_n, min(amount) AS least,
    max(n) AS newest, max_by(k, struct(n, k)) FILTER (WHERE amount > 20) AS last_key,
    bool_and(amount > 1) AS all_paid, coalesce(sum(amount) FILTER (WHERE n < 9), 0) AS early_amount,
    CAST(CAST(count_if(n > 9) AS DECIMAL(18, 0)) / count(*) AS DECIMAL(7, 6)) AS late_share
FROM pond.present GROUP BY g""",
    "d/by_day.sql": """/*
keys: [day]
*/
WITH both AS (
    SELECT date(at) AS day, amount, id FROM pond.by_event WHERE g IS NOT NULL
    UNION ALL
    SELECT date(at) AS day, -amount AS amount, k AS id FROM pond.latest
)
SELECT day, count(*) AS rows, sum(amount) AS balance, min(amount) AS least, max(struct(amount, id)).id AS dearest
FROM both GROUP BY day""",
    "d/distinct.sql": """/*
keys: [g]
*/
SELECT g, count(DISTINCT k) AS keys, sum(CAST(n AS DOUBLE)) AS n, array_sort(collect_set(n)) AS all_n FROM pond.by_event
GROUP BY g""",
}
"""Aggregates that are maintained by states, of one driver and of two, and one that is not."""


@dataclass(frozen=True)
class Event:
    """What a test sends. Events with the same `id` are redeliveries: all of them alike."""

    id: str
    k: str
    g: str | None
    n: int
    cents: int
    op: str
    minutes: int

    def row(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "k": self.k,
            "g": self.g,
            "n": self.n,
            "amount": Decimal(self.cents) / 100,
            "op": self.op,
            "at": START + timedelta(minutes=self.minutes),
            "tags": [("g", self.g or "")],
        }


class Sent(Protocol):
    """What a test lands: anything that knows its row."""

    def row(self) -> dict[str, Any]: ...


class LayerLake:
    """A lake with the tables above, or with the tables of a test (file: text)."""

    def __init__(
        self, folder: Path, spark: SparkSession, tables: Mapping[str, str] | None = None, *, settings: Settings | None = None
    ) -> None:
        self.folder = folder
        self._spark = spark
        home = folder / "pipelines/pond"
        for name, text in {
            "pipeline.yml": PIPELINE,
            "schemas/event.sql": SCHEMA,
            **(TABLES if tables is None else tables),
        }.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        self.settings: Settings = settings or load_settings(flags={}, environ={}, folder=folder)
        self.catalog = open_catalog(self.settings)
        self.reload()

    def reload(self) -> None:
        """Read the pipeline's files again."""
        self.pipeline: Pipeline = load_pipeline("pond", environ={}, folder=self.folder)
        self._raw = {
            stream.name: ensure_table(
                self.catalog,
                stream.table,
                columns=landed_columns(stream),
                location=table_location(self.settings, stream.table),
            )
            for stream in self.pipeline.streams
        }
        self.lake: Lake = open_lake(self.settings, self.pipeline, self._spark)

    def widen(self, columns: tuple[Column, ...], *, stream: str | None = None) -> None:
        """Return the raw table of a stream, by default the first, a place for more, as landing does when a schema has grown."""
        name = stream or self.pipeline.streams[0].name
        self._raw[name] = widen_table(self._raw[name], columns)

    def land(self, events: Sequence[Sent], *, stream: str | None = None) -> None:
        """Append events to the raw table of a stream, by default the first, as one checkpoint."""
        name = stream or self.pipeline.streams[0].name
        rows = [event.row() for event in events]
        self._raw[name] = append_rows(self.catalog, self._raw[name], rows, topic="pond-events")

    def build(self, table: str | None = None, *, full_refresh: bool = False) -> tuple[Outcome, ...]:
        """Build all tables, none of which may fail."""
        outcomes = build(self.lake, table=table, full_refresh=full_refresh)
        for outcome in outcomes:
            if outcome.error:
                raise outcome.error
        return outcomes

    def rows(self, table: str) -> Counter[str]:
        """Return a table's rows, without the build that wrote them and without states."""
        stored = self.catalog.load_table(f"pond.{table}").scan().to_arrow()
        stored = stored.drop_columns([name for name in (BUILD_ID, STATE) if name in stored.column_names])
        return Counter(repr(sorted(row.items())) for row in stored.to_pylist())

    def all_rows(self) -> dict[str, Counter[str]]:
        return {table.table.name: self.rows(table.table.name) for table in self.pipeline.tables}


def assert_same(rows: Mapping[str, Counter[str]], wanted: Mapping[str, Counter[str]]) -> None:
    """Hold the rows of tables against each other, and show the first few that differ."""
    for name in wanted:
        missing, surplus = wanted[name] - rows[name], rows[name] - wanted[name]
        assert (_few(missing), _few(surplus)) == ([], []), f"{name}: (missing, surplus)"


def _few(rows: Iterable[str]) -> list[str]:
    return sorted(rows)[:4]
