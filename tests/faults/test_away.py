"""The catalog, the object store and Kafka of the stack go away in the middle of a live run: it waits, says so and goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import KafkaError, Message, Producer

from headrace.runs.inspection import verify
from headrace.services import embedded, kafka, object_store, postgres, rest_catalog, spark_cluster, stack
from headrace.services.embedded import Embedded
from headrace.services.kafka_client import KafkaServers
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.layers import BUILD_ID
from headrace.tables.catalog import open_catalog
from tests.application import Application, start_headrace
from tests.waiting import wait_until

pytestmark = pytest.mark.long

AWAY_SECONDS = float(os.environ.get("AWAY_SECONDS", "60"))
"""For how long each server is away; fewer only to try this test."""
SOON_SECONDS = 90.0
EVENTS_PER_SECOND = 20
KEYS = 50
WAITS = "waiting, and trying again until it goes on"
TITLES = {"catalog": "the catalog does not answer", "s3": "the object store does not answer", "kafka": "Kafka"}
SERVERS = (
    kafka.BROKER,
    postgres.SERVER,
    object_store.SERVER,
    rest_catalog.SERVER,
    spark_cluster.SERVER,
    *spark_cluster.WORKERS,
)
FILES = {
    "pipeline.yml": """\
name: orders
about: Orders, and what became of them.
namespace: orders
streams:
  events: {topic: orders-events, format: json, schema: schemas/event.sql, table: orders.events}
""",
    "schemas/event.sql": "id STRING, k STRING, n BIGINT, cents BIGINT",
    "layers/latest.sql": """/*
keys: [k]
sequence_by: n
*/
SELECT k, n, id, cents FROM orders.events""",
    "layers/totals.sql": """/*
keys: [k]
*/
SELECT k, count(*) AS orders, sum(cents) AS cents FROM orders.events GROUP BY k""",
}


def quiet(sentence: str) -> None:
    pass


@dataclass
class Traffic:
    """Sends events steadily, and counts those that Kafka has acknowledged."""

    servers: KafkaServers
    topic: str
    sent: int = 0
    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)
    _stop: Event = field(default_factory=Event)

    def start(self) -> None:
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        assert not self.failed, self.failed
        assert self.acknowledged == self.sent > 0

    def _send(self) -> None:
        chance = random.Random(7)
        producer = Producer(self.servers.client(linger_ms=5, enable_idempotence=True, log_level=0))
        while not self._stop.wait(1.0):
            for _ in range(EVENTS_PER_SECOND):
                event = {
                    "id": f"e{self.sent}",
                    "k": f"k{chance.randrange(KEYS)}",
                    "n": self.sent,
                    "cents": chance.randrange(1, 90_000),
                }
                producer.produce(self.topic, json.dumps(event).encode(), on_delivery=self._delivered)
                self.sent += 1
            producer.poll(0)
        producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))


@dataclass
class Shop:
    """A pipeline on a stack of its own."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"HEADRACE_PROFILE": "stack", "HEADRACE_HOME": str(self.folder / ".headrace")}

    @property
    def home_settings(self) -> Settings:
        return load_settings(flags={}, environ=self.environ, folder=self.folder)

    @property
    def settings(self) -> Settings:
        return stack.stack_settings(self.home_settings)

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline("orders", environ=self.environ, folder=self.folder)

    @property
    def kafka(self) -> KafkaServers:
        found = kafka.find_servers(self.home_settings)
        assert found is not None
        return found

    def start(self, *arguments: str) -> Application:
        return start_headrace(*arguments, environ=self.environ, folder=self.folder)

    def rows(self, name: str) -> Counter[str]:
        found = open_catalog(self.settings).load_table(name).scan().to_arrow().drop_columns([BUILD_ID])
        return Counter(repr(sorted(row.items())) for row in found.to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    for name, text in FILES.items():
        path = tmp_path / "pipelines" / "orders" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = Shop(tmp_path)
    try:
        for server in SERVERS:
            embedded.start(server, found.home_settings, detached=True, report=quiet)
        yield found
    finally:
        for server in reversed(SERVERS):
            embedded.stop(server, found.home_settings, report=quiet)


def test_each_is_away_for_a_minute(shop: Shop) -> None:
    traffic = Traffic(shop.kafka, shop.pipeline.streams[0].topic)
    traffic.start()
    application = shop.start("run", "orders")
    try:
        application.wait_to_say("orders.totals  build", seconds=300)
        for server in (rest_catalog.SERVER, object_store.SERVER, kafka.BROKER):
            take_away(server, shop.home_settings, application)
        traffic.end()
        wait_until(lambda: not waiting(shop), what="all to be landed", seconds=SOON_SECONDS, pause=1.0)
        application.signal(signal.SIGTERM)
        assert application.wait(seconds=180) == 0, application.said()
    finally:
        application.end()
        print(application.said())
    said = application.said()
    assert "Traceback" not in said
    assert "failed:" not in said, "a table did not wait"
    (found,) = verify(shop.settings, shop.pipeline, bootstrap_servers=shop.kafka)
    assert (found.missing, found.doubled, found.unlogged, found.waiting) == (0, 0, 0, 0), found
    assert found.landed == found.in_topic == traffic.sent
    check_against_a_full_build(shop)


def take_away(server: Embedded, settings: Settings, application: Application) -> None:
    """Kills a server, starts it again on its port when it was away for a while, and holds the run to what it must say."""
    told = len(application.said())
    before = embedded.running(server, settings)
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    time.sleep(AWAY_SECONDS)
    assert application.process.poll() is None, application.said()
    after = embedded.start(server, settings, detached=True, report=quiet)
    assert (after.port, after.pid != before.pid) == (before.port, True)
    # Kafka is what landing alone needs: builds go on without it.
    parts = ("landing",) if server is kafka.BROKER else ("landing", "builds")
    for part in parts:
        wait_until(
            lambda: f"{part}: going on after" in application.said()[told:],  # noqa: B023
            what=f"{part} to go on without {server.name}:\n{application.said()[told:]}",
            seconds=SOON_SECONDS,
        )
        lines = [line for line in application.said()[told:].splitlines() if line.startswith(f"{part}: ")]
        assert [line.endswith(WAITS) for line in lines] == [True, False], "it is told once, and once that it goes on"
        assert TITLES[server.name] in lines[0]
    wait_until(
        lambda: application.said()[told:].rpartition("going on after")[2].count("orders.totals  build"),
        what="tables to be built again",
        seconds=SOON_SECONDS,
    )


def waiting(shop: Shop) -> int:
    return sum(each.waiting for each in verify(shop.settings, shop.pipeline, bootstrap_servers=shop.kafka))


def check_against_a_full_build(shop: Shop) -> None:
    built = shop.start("build", "orders")
    assert built.wait(seconds=240) == 0, built.said()
    names = [str(table.table) for table in shop.pipeline.tables]
    before = {name: shop.rows(name) for name in names}
    anew = shop.start("build", "orders", "--full-refresh")
    assert anew.wait(seconds=240) == 0, anew.said()
    assert all(before[name] for name in names)
    assert before == {name: shop.rows(name) for name in names}
