"""What the log has of landing: a line for each stream of a batch, and the reason of each stream that stops."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SpecError
from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.kafka.topics import TopicIdentity
from headrace.landing import lander as lander_module
from headrace.landing import open_streams as open_streams_module
from headrace.landing.batch import Range, StreamResult, TaskFailure
from headrace.landing.landed import LandingStream
from headrace.landing.lander import Lander
from headrace.landing.plan import Bounds
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from tests.landing.inline_spark import InlineSpark

EMAIL = "alice@example.com"
TRACE = f'Traceback (most recent call last):\n  File "decoder.py", line 7, in decode\nValueError: no number: {EMAIL}\n'
PIPELINE = """\
name: shop
about: Two streams.
namespace: shop
streams:
  orders: {topic: shop-orders, format: json, schema: schemas/order.sql, table: shop.orders}
  refunds: {topic: shop-refunds, format: json, schema: schemas/order.sql, table: shop.refunds}
"""


class Topics:
    """Two topics of one partition each, of which Kafka has the offsets of `bounds`."""

    def __init__(self, *arguments: object) -> None:
        self.of = {"shop-orders": Bounds(0, 100), "shop-refunds": Bounds(0, 10)}

    def bounds(self, topics: list[str]) -> tuple[dict[str, dict[int, Bounds]], dict[str, Any]]:
        return {topic: {0: self.of[topic]} for topic in topics}, {}

    def identity(self, topic: str) -> TopicIdentity:
        return TopicIdentity(f"id-{topic}", "cluster")

    def check_unchanged(self, topics: object) -> None:
        pass


class Shop:
    """A lander with a catalog of its own. Its tasks give the results of `results`, which are by label."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headrace.landing")
        self._caplog = caplog
        self.topics = Topics()
        self.results: dict[str, StreamResult] = {}
        for name, text in {"pipeline.yml": PIPELINE, "schemas/order.sql": "id INT"}.items():
            path = folder / "pipelines" / "shop" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.settings: Settings = load_settings(flags={}, environ={}, folder=folder)
        self.pipeline: Pipeline = load_pipeline("shop", environ={}, folder=folder)
        monkeypatch.setattr(lander_module, "ensure_topics", lambda admin, topics, configs: None)
        monkeypatch.setattr(lander_module, "WatchedTopics", lambda *arguments: self.topics)

        def run(lander: Lander, spark: object, active: list[LandingStream], ranges: list[Range]) -> dict[str, Any]:
            return {stream.label: [self.results[stream.label]] for stream in active}

        monkeypatch.setattr(Lander, "_run", run)

    def open(self) -> Lander:
        admin: Any = None
        return Lander(self.settings, self.pipeline, catalog=open_catalog(self.settings), admin=admin, consumer={})

    def land(self, lander: Lander) -> None:
        spark: Any = InlineSpark()
        lander.land_batch(spark)

    @property
    def lines(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [(record.levelname, record.getMessage(), record.__dict__["headrace_fields"]) for record in self._caplog.records]

    @property
    def text(self) -> str:
        return (self.settings.logs / "landing.log").read_text(encoding="utf-8")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Shop:
    return Shop(tmp_path, monkeypatch, caplog)


def result(label: str, rows: int, bad: int = 0, **more: Any) -> StreamResult:
    return StreamResult(label, rows, bad, [], [], **more)


def test_batch_is_one_line_for_each_stream(shop: Shop) -> None:
    shop.results = {"shop.orders": result("shop.orders", 97, 3), "shop.refunds": result("shop.refunds", 10)}
    shop.land(shop.open())
    lines = sorted(shop.lines, key=lambda line: str(line[2]["stream"]))
    assert [(level, said) for level, said, _ in lines] == [("INFO", "landed a batch")] * 2
    seconds = [fields.pop("seconds") for _, _, fields in lines]
    assert all(0 <= reading < 60 for reading in seconds)
    assert [fields for _, _, fields in lines] == [
        {"pipeline": "shop", "stream": "orders", "table": "shop.orders", "checkpoint": 1, "rows_in": 100, "rows_bad": 3},
        {"pipeline": "shop", "stream": "refunds", "table": "shop.refunds", "checkpoint": 1, "rows_in": 10, "rows_bad": 0},
    ]
    assert not (shop.settings.logs / "landing.log").exists()


def test_nothing_to_land_is_no_line(shop: Shop) -> None:
    shop.topics.of = {"shop-orders": Bounds(0, 0), "shop-refunds": Bounds(0, 0)}
    shop.land(shop.open())
    assert shop.lines == []


def test_stream_that_fails_has_its_traceback_in_the_log_that_its_message_names(shop: Shop) -> None:
    failure = TaskFailure(f"ValueError: no number: {EMAIL}", TRACE)
    shop.results = {
        "shop.orders": result("shop.orders", 0, failure=failure),
        "shop.refunds": result("shop.refunds", 10),
    }
    lander = shop.open()
    shop.land(lander)
    assert lander.stopped["shop.orders"].next_step.endswith("headrace logs landing")
    assert shop.text.endswith(f"ERROR shop.orders: try 1 failed\n{TRACE}")
    (failed,) = [line for line in shop.lines if line[0] == "ERROR"]
    assert failed == ("ERROR", "shop.orders: try 1 failed", {"pipeline": "shop", "stream": "orders", "log": "landing"})
    assert EMAIL not in "".join(str(record.__dict__) for record in shop._caplog.records)


def test_quarantined_messages_are_in_the_file_and_not_in_lines(shop: Shop) -> None:
    shop.topics.of["shop-refunds"] = Bounds(0, 0)
    shop.results = {"shop.orders": result("shop.orders", 99, 1, refused=(f"ValueError: {EMAIL}",), traces=(TRACE,))}
    shop.land(shop.open())
    assert [(level, said) for level, said, _ in shop.lines] == [
        ("WARNING", "shop.orders: messages were quarantined"),
        ("INFO", "landed a batch"),
    ]
    assert TRACE in shop.text
    assert EMAIL not in "".join(str(record.__dict__) for record in shop._caplog.records)


def test_stream_that_needs_a_decision_is_logged_once(shop: Shop) -> None:
    shop.results = {"shop.orders": result("shop.orders", 100), "shop.refunds": result("shop.refunds", 10)}
    lander = shop.open()
    shop.land(lander)
    shop.topics.of["shop-orders"] = Bounds(500, 600)
    for _ in range(3):
        shop.land(lander)
    assert shop.text.count("ERROR shop.orders: stopped\n") == 1
    assert "headrace.errors.GapError: " in shop.text
    assert [fields["error"] for level, _, fields in shop.lines if level == "ERROR"] == ["GapError"]


def test_table_that_can_not_be_opened_is_logged(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(catalog: Any, name: Any, **named: Any) -> Any:
        if name.name == "orders":
            raise SpecError("a column would have to be narrowed", where="shop.orders")
        return ensure_table(catalog, name, **named)

    monkeypatch.setattr(open_streams_module, "ensure_table", refuse)
    assert "shop.orders" in shop.open().stopped
    assert "ERROR shop.orders: its table can't be opened\nTraceback (most recent call last):\n" in shop.text
    assert "a column would have to be narrowed" in shop.text
