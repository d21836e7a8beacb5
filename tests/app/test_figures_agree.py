"""Status, verify, quality, the quarantine and the pages agree on row counts after replays, erasures and rebuilds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from headrace.app.figures import list_layer_tables, list_streams
from headrace.iceberg.ledgers.replay import Window
from headrace.kafka.client import KafkaServers
from headrace.landing.decode.extra import names_in_extra
from headrace.operations.erase.forgetting import ErasureSession, begin_erasure, finish_erasure, preview_erasure
from headrace.operations.erase.identifiers import identify
from headrace.operations.quality import ExpectationReport, report_quality
from headrace.operations.replay.choice import ReplayRequest
from headrace.operations.replay.replaying import ReplaySession, replay
from headrace.serving.web.context import WebContext
from headrace.serving.web.table_facts import describe_table, list_files, read_refused
from headrace.sessions.building import build, open_lake
from headrace.spec.model.pipeline import Pipeline
from tests.support.folders import write_files
from tests.support.lake import Lake
from tests.support.topics import make_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]

NARROW = "id STRING NOT NULL, email STRING, n INT"
WIDE = "id STRING NOT NULL, email STRING, n BIGINT, colour STRING"
BIG = 3_000_000_000
STREAM, RAW, ORDERS = "till.events", "raw.events", "staging.orders"
FILES = {
    "pipeline.yml": """\
name: till
about: orders of people
streams:
  events: {topic: TOPIC, format: json, schema: schemas/event.sql, table: raw.events}
people:
  streams:
    events: {email: email, ids: {till: id}}
""",
    "schemas/event.sql": NARROW,
    "staging/orders.sql": """/*
keys: [id]
sequence_by: n
expect:
  there is an email: email IS NOT NULL
  the number is positive: {that: n > 0, on_failure: quarantine}
*/
SELECT id, email, n FROM raw.events""",
}


@dataclass
class Till:
    """A pipeline with people, extra fields, refused messages and refused rows."""

    lake: Lake
    spark: SparkSession

    def __post_init__(self) -> None:
        make_topic(self.lake.servers, self.lake.topic)
        self.write_schema(NARROW)

    def write_schema(self, schema: str) -> None:
        text = FILES["pipeline.yml"].replace("TOPIC", self.lake.topic)
        files = {**FILES, "pipeline.yml": text, "schemas/event.sql": schema}
        write_files(self.lake.folder / "pipelines" / "till", files)

    @property
    def pipeline(self) -> Pipeline:
        return self.lake.pipeline("till")

    def land(self, *messages: Mapping[str, object] | bytes) -> None:
        values = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in messages]
        produce(self.lake.servers, self.lake.topic, values)
        self.lake.land(self.spark, self.pipeline)

    def build(self, *, full_refresh: bool = False) -> None:
        outcomes = build(open_lake(self.lake.settings(), self.pipeline, self.spark), full_refresh=full_refresh)
        assert not [outcome.error for outcome in outcomes if outcome.error]

    def replay(self, request: ReplayRequest) -> None:
        lake = open_lake(self.lake.settings(), self.pipeline, self.spark)
        replay(ReplaySession(lake, KafkaServers(self.lake.servers)), request, dry_run=False)

    def forget(self, email: str) -> None:
        lake = open_lake(self.lake.settings(), self.pipeline, self.spark)
        assert self.pipeline.people is not None
        session = ErasureSession(lake, self.pipeline.people, 1e12)
        note = begin_erasure(session, preview_erasure(session, [identify(emails=[email], ids=[])], requested=False))
        finish_erasure(session, note, publish=lambda: None, report=lambda sentence: None)

    def check(self) -> dict[str, ExpectationReport]:
        """Compare all surfaces with the rows themselves; return the expectations by sentence."""
        catalog, pipeline, now = self.lake.catalog, self.pipeline, datetime.now(timezone.utc)
        raw, orders = self.lake.rows(RAW), self.lake.rows(ORDERS)
        refused = Counter(row["stream"] for row in self.lake.rows("metadata.quarantine"))
        (stream,) = list_streams(catalog, pipeline, bounds=None, now=now)
        (verified,) = self.lake.verify(pipeline)
        assert verified.holds, verified
        assert (stream.rows, verified.landed) == (len(raw), len(raw))
        assert (stream.quarantined, verified.quarantined) == (refused[STREAM], refused[STREAM])
        held = Counter(name for row in raw if row["_extra"] for name in names_in_extra(row["_extra"]))
        assert dict(stream.extras) == dict(held)
        (table,) = list_layer_tables(catalog, pipeline, now=now)
        assert (table.rows, table.quarantined) == (len(orders), refused[ORDERS])
        quality = {report.sentence: report for report in report_quality(self.lake.settings(), pipeline)}
        counted, set_aside = quality["there is an email"], quality["the number is positive"]
        assert (counted.rows, counted.failing) == (len(orders), sum(row["email"] is None for row in orders))
        assert (set_aside.failing, set_aside.quarantined) == (0, refused[ORDERS])
        assert (counted.build_id, counted.last_failed) == (table.build_id, table.warnings)
        context: Any = WebContext((pipeline,), figures=tuple, catalog=lambda: catalog, topics=None)  # type: ignore[arg-type]
        for name, rows, label in ((RAW, raw, STREAM), (ORDERS, orders, ORDERS)):
            shown = context.tables[name]
            stored = catalog.load_table(name)
            assert list_files(stored)["rows"] == len(rows)
            described: Any = describe_table(shown, stored)
            assert described["snapshots"][0]["total_rows"] == len(rows)
            page = read_refused(catalog, shown)
            assert page is not None
            assert len(page.rows) == refused[label]
            for expectation in described["expectations"]:
                report = quality[expectation["sentence"]]
                assert (expectation["checked"], expectation["failed"]) == (report.last_checked, report.last_failed)
        return quality


def test_all_figures_agree_after_replays_erasures_and_rebuilds(lake: Lake, spark: SparkSession) -> None:
    till = Till(lake, spark)
    ann, bob = "ann@example.com", "bob@example.com"
    till.land(
        {"id": "o1", "email": ann, "n": 1, "colour": "red"},
        {"id": "o2", "email": bob, "n": 1, "colour": "blue", "size": 3},
        {"id": "o3", "email": None, "n": 1},
        {"id": "o4", "email": bob, "n": -1},
        {"id": "o5", "email": ann, "n": -2},
        {"id": "o6", "email": bob, "n": BIG, "colour": "green"},
        b'{"id": "o7", "email": "ann@example.com", broken',
    )
    till.build()
    report = till.check()["there is an email"]
    assert (report.rows, report.failing, report.last_checked) == (3, 1, 5)
    till.land({"id": "o3", "email": bob, "n": 2}, {"id": "o8", "email": None, "n": 2})
    till.build()
    report = till.check()["there is an email"]
    assert (report.rows, report.failing, report.last_checked) == (4, 1, 2)  # the row of before is no longer there
    till.write_schema(WIDE)
    till.replay(ReplayRequest(Window(datetime(2000, 1, 1, tzinfo=timezone.utc), None)))
    report = till.check()["there is an email"]
    assert (report.rows, report.failing) == (5, 1)
    till.forget(ann)
    report = till.check()["there is an email"]
    assert (report.rows, report.failing) == (4, 1)
    till.build(full_refresh=True)
    till.check()
    till.land({"id": "o9", "email": None, "n": 3, "size": 4})
    till.build()
    report = till.check()["there is an email"]
    assert (report.rows, report.failing, report.last_checked, report.last_failed) == (5, 2, 1, 1)
