"""Explained plans: where builds run and why, their lookup columns, and the numbers of changed rows; without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from rich.console import Console

from headrace.app.explaining import explain_plans
from headrace.build import plan as plan_module
from headrace.build.definition import definition_of
from headrace.build.explain import Explanation, Where
from headrace.build.inputs import input_states
from headrace.cli.render.explained import explanation_as_json, show_explained
from headrace.cli.render.results import show_plan
from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.iceberg.files.live_files import LiveFiles
from headrace.iceberg.ledgers import build as build_ledger
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.iceberg.ledgers.landing import Ledger, read_ledger
from headrace.iceberg.rows.row_sizes import estimate_bytes
from headrace.sessions.building import plan
from headrace.settings import load_settings
from headrace.spec import load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, Primitive
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """name: mine
about: Orders.
namespace: mine
streams:
  orders: {topic: orders, format: json, schema: schemas/order.sql, table: raw.orders}
  people: {topic: people, format: json, schema: schemas/person.sql, table: raw.people}
""",
    "schemas/order.sql": "id STRING, person STRING, shop INT, at TIMESTAMP, n LONG",
    "schemas/person.sql": "id STRING, number LONG, name STRING",
}
ENRICHED = """/*
keys: [id]
sequence_by: n
frozen: [raw.people]
*/
SELECT o.id, o.n, p.name FROM raw.orders o LEFT JOIN raw.people p ON {condition}"""
DAILY = """/*
keys: [shop, day]
*/
SELECT shop, CAST(at AS DATE) AS day, count(*) AS orders FROM raw.orders GROUP BY shop, CAST(at AS DATE)"""
FEW_AGAIN = "all rows are rewritten, and the inputs have at most 50,000 rows"
BY_PERSON = """/*
keys: [person]
*/
SELECT person, count(DISTINCT shop) AS shops FROM raw.orders GROUP BY person"""
LENGTHS = """/*
keys: [length]
*/
SELECT length(id) AS length, count(*) AS orders FROM raw.orders GROUP BY length(id)"""
ROLLING = """/*
keys: [id]
window: {partition_by: [person], order_by: at, range: 1 hour}
*/
SELECT id, person, at, count(*) OVER w AS orders FROM raw.orders
WINDOW w AS (PARTITION BY person ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)"""


class Metadata:
    """A lake of which only metadata matters: raw tables with rows, and a table that was built from them once."""

    def __init__(self, folder: Path, text: str, *, name: str = "shape/made.sql") -> None:
        write_files(folder / "pipelines" / "mine", {**FILES, name: text})
        self.settings = load_settings(flags={}, environ={}, folder=folder)
        self.pipeline = load_pipeline("mine", environ={}, folder=folder)
        self.catalog = open_catalog(self.settings)
        self.land("orders", 4)
        self.land("people", 5)
        self._build()

    def land(self, stream_name: str, rows: int) -> None:
        stream = next(candidate for candidate in self.pipeline.streams if candidate.name == stream_name)
        table = self._open(stream.table, landed_columns(stream))
        entry = read_ledger(table)
        new = replace(entry, checkpoint_id=entry.checkpoint_id + 1)
        nulls = [{"kafka_topic": "t", "kafka_partition": 0, "kafka_offset": number} for number in range(rows)]
        self._commit(stream.table, nulls, ledger.KEY, new)

    def _build(self) -> None:
        (table,) = self.pipeline.tables
        self._open(table.table, (Column("id", Primitive("string")), Column(BUILD_ID, Primitive("long"))))
        reads = input_states(self.catalog, self.pipeline, table.inputs)
        entry = BuildLedger(
            build_id=1,
            definition=definition_of(table).digest,
            writer="w",
            reads={str(name): state for name, state in reads.items()},
            rows_written=3,
        )
        self._commit(table.table, [{"id": "a"}] * 3, build_ledger.KEY, entry)

    def _open(self, name: TableName, columns: tuple[Column, ...]) -> Any:
        return ensure_table(self.catalog, name, columns=columns, location=table_location(self.settings, name))

    def _commit(self, name: TableName, rows: Sequence[dict[str, object]], key: str, entry: Ledger | BuildLedger) -> None:
        table = self.catalog.load_table(str(name))
        with table.transaction() as transaction:
            arrow = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(table.schema()))
            transaction.append(arrow, snapshot_properties={key: entry.to_json()})
            transaction.set_properties({key: entry.to_json()})

    def explain(self, *, full_refresh: bool = False) -> Explanation:
        plans = plan(self.settings, self.pipeline, table=None, full_refresh=full_refresh)
        (explanation,) = explain_plans(self.settings, self.pipeline, plans)
        return explanation


def reads_of(explained: Explanation) -> list[tuple[str, str, tuple[str, ...], str]]:
    return [(str(read.table), read.role, read.columns, read.values or read.whole) for read in explained.reads]


def few_rows_are_many(monkeypatch: pytest.MonkeyPatch, most: int = 3) -> None:
    monkeypatch.setattr("headrace.build.access_reads.SMALL_LOOKUP", most)


def test_explain_names_the_columns_of_a_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata(tmp_path, ENRICHED.format(condition="p.id = o.person"))
    assert reads_of(metadata.explain())[1] == ("raw.people", "lookup", (), "it has at most 2,000")
    few_rows_are_many(monkeypatch)
    explained = metadata.explain()
    assert reads_of(explained) == [
        ("raw.orders", "driver", (), ""),
        ("raw.people", "lookup", ("id",), "person of raw.orders"),
        ("mine.made", "itself", ("id",), "the touched keys"),
    ]
    assert (explained.small_builds.engine, explained.next_build, explained.changed) == ("memory", None, 0)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("lower(p.id) = lower(o.person)", "it needs all 5 rows of raw.people: "),
        ("p.number = o.shop", ""),
        ("p.id = o.shop", "it needs all 5 rows of raw.people: id is string, and shop of raw.orders is int"),
    ],
)
def test_explain_has_the_reason_for_scans(condition: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows_are_many(monkeypatch)
    small = Metadata(tmp_path, ENRICHED.format(condition=condition)).explain().small_builds
    assert small.engine == ("scans" if why else "memory")
    assert small.why.startswith(why)


def test_explain_finds_the_rows_of_an_aggregate_by_its_keys(tmp_path: Path) -> None:
    explained = Metadata(tmp_path, DAILY).explain()
    assert reads_of(explained) == [
        ("raw.orders", "driver", ("shop", "at"), "the touched shop, day (the day of at)"),
        ("mine.made", "itself", ("shop", "day"), "the touched keys"),
    ]


def test_explain_aggregate_that_needs_its_whole_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata(tmp_path, LENGTHS)
    explained = metadata.explain()
    assert reads_of(explained)[0][3] == "no key is one of its plain columns or a truncated time"
    assert explained.small_builds.engine == "memory", "its rows are few"
    many = replace(explained.reads[0], rows=100_001)
    assert many.is_too_large
    assert not replace(many, rows=100_000).is_too_large


def test_explain_finds_the_rows_of_a_window(tmp_path: Path) -> None:
    assert reads_of(Metadata(tmp_path, ROLLING).explain())[0] == (
        "raw.orders",
        "driver",
        ("person", "at"),
        "the changed rows' values, within 3,600 s",
    )


def test_explain_few_records_are_resolved_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = "keys: [id]\nsequence_by: n\noldest_by: n\nmatch: {person_exact: {from: person, as: exact}}"
    metadata = Metadata(tmp_path, f"/*\n{settings}\n*/\nSELECT id, n, person FROM raw.orders")
    explained = metadata.explain(full_refresh=True)
    assert explained.small_builds.engine == "memory"
    assert explained.next_build == Where("memory", FEW_AGAIN)
    monkeypatch.setattr(plan_module, "FEW_REFRESHED", 0)
    assert metadata.explain(full_refresh=True).next_build == Where("scans", "all rows are rewritten")


def test_explain_where_a_full_table_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata(tmp_path, "/*\nkind: full\n*/\nSELECT id, n, person FROM raw.orders")
    assert metadata.explain().small_builds == Where("memory", FEW_AGAIN)
    monkeypatch.setattr(plan_module, "FEW_REFRESHED", 0)
    assert metadata.explain().small_builds == Where("scans", "all rows are rewritten")


def test_explain_counts_the_rows_that_changed(tmp_path: Path) -> None:
    metadata = Metadata(tmp_path, DAILY)
    metadata.land("orders", 6)
    metadata.land("orders", 1)
    table = metadata.catalog.load_table("raw.orders")
    table.append(table.scan().to_arrow().slice(0, 2))  # as compaction does: a snapshot without a checkpoint
    explained = metadata.explain()
    assert (explained.changed, explained.reads[0].rows) == (7, 13)
    assert explained.next_build == explained.small_builds
    refreshed = metadata.explain(full_refresh=True)
    assert refreshed.next_build
    assert refreshed.next_build == Where("memory", FEW_AGAIN)


def test_explain_file_exceeds_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata(tmp_path, DAILY)
    metadata.land("orders", 3_000)
    metadata.settings = replace(metadata.settings, build_cache_mb=0)
    small = metadata.explain().small_builds
    why = "raw.orders: the rows of a data file take about 0 MB, which exceeds build.cache_mb (0)"
    assert (small.engine, small.why) == ("scans", why)


@pytest.mark.parametrize(("text", "engine"), [(DAILY, "memory"), (BY_PERSON, "scans")])
def test_explain_files_of_a_build_exceed_the_cache(tmp_path: Path, text: str, engine: str) -> None:
    metadata = Metadata(tmp_path, text)
    for _ in range(4):
        metadata.land("orders", 5_000)
    rows = LiveFiles().of(metadata.catalog.load_table("raw.orders"), None)
    (size,) = {estimate_bytes(file.file, metadata.catalog.load_table("raw.orders").schema()) for file in rows if file.rows > 4}
    assert 3 * size < 2 << 20 < 4 * size, "three files fit, and four do not"
    metadata.settings = replace(metadata.settings, build_cache_mb=2)
    small = metadata.explain().small_builds
    assert small.engine == engine
    assert "build.cache_mb (2)" in small.why


def test_explain_table_that_was_never_built(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "mine", {**FILES, "shape/made.sql": DAILY})
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    pipeline = load_pipeline("mine", environ={}, folder=tmp_path)
    plans = plan(settings, pipeline, table=None, full_refresh=False)
    (explained,) = explain_plans(settings, pipeline, plans)
    assert explained.next_build == Where("memory", FEW_AGAIN)
    assert (explained.changed, explained.stored.total) == (0, 0)
    assert not settings.home.exists(), "looking creates nothing"


def test_plan_shows_how_keys_of_aggregates_are_updated(tmp_path: Path) -> None:
    tables = {
        "shape/newest.sql": "/*\nkeys: [id]\nsequence_by: n\n*/\nSELECT id, n FROM raw.orders",
        "shape/made.sql": "/*\nkeys: [id]\n*/\nSELECT id, count(*) AS n FROM raw.orders GROUP BY id",
    }
    write_files(tmp_path / "pipelines" / "mine", {**FILES, **tables})
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    pipeline = load_pipeline("mine", environ={}, folder=tmp_path)
    plans = plan(settings, pipeline, table=None, full_refresh=False)
    console = Console(file=StringIO(), width=200)
    show_plan(console, plans, pipeline=pipeline, as_json=False)
    rows = [[cell.strip() for cell in line.split("│")] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    cells = {row[1]: row[5:7] for row in rows if len(row) > 1}
    assert cells["mine.made"] == ["it was never built", "adds changed rows to stored states"]
    assert cells["mine.newest"] == ["it was never built", ""]


def test_explanation_is_shown_in_a_hundred_columns_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows_are_many(monkeypatch)
    metadata = Metadata(tmp_path, ENRICHED.format(condition="p.id = o.person"))
    metadata.land("orders", 6)
    explained = metadata.explain()
    console = Console(file=StringIO(), width=100)
    show_explained(console, [explained])
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert shown == [
        "",
        "mine.made",
        "upsert        keeps the newest row of each key: merges new events with the existing rows",
        "now           builds what changed: raw.orders has moved by 1 commit",
        "small builds  in memory: it fetches up to 100,000 rows, and 64 MB in total, through file indexes",
        "reads         raw.orders: about 6 of 10 rows changed",
        "              raw.people, looked up: by id = person of raw.orders; 5 rows in total",
        "              its own rows: by id = the touched keys; 3 rows in total",
    ]
    explanation = explanation_as_json(explained)
    assert explanation["small_builds"] == {
        "in": "memory",
        "why": "it fetches up to 100,000 rows, and 64 MB in total, through file indexes",
    }
    assert explanation["next_build"] == explanation["small_builds"]
    assert (explanation["changed_rows"], explanation["cached"]) == (6, {"row_bytes": 0, "index_bytes": 0})
    paths = explanation["access_paths"]
    assert isinstance(paths, list)
    assert paths[1] == {
        "table": "raw.people",
        "role": "lookup",
        "rows": 5,
        "changed_rows": None,
        "built_first": False,
        "columns": ["id"],
        "values": "person of raw.orders",
        "whole": None,
    }
    assert read_build(metadata.catalog.load_table("mine.made")).build_id == 1, "nothing was built"
