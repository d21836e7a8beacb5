"""The catalog, the object store and Kafka of the stack go away in the middle of a live run: it waits, says so and goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

import pytest
from confluent_kafka import KafkaError, Message

from headrace.servers import embedded, kafka, object_store, rest_catalog
from headrace.servers.embedded import Embedded
from headrace.spec.model.layers import BUILD_ID, STATE
from tests.programs.stacked import StackLake, running_stack, start_server
from tests.support.application import Application
from tests.support.lake import check_verified
from tests.support.topics import produce, producer_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

AWAY_SECONDS = float(os.environ.get("AWAY_SECONDS", "60"))
"""For how long each server is away; fewer only to try this test."""
SOON_SECONDS = 90.0
EVENTS_PER_SECOND = 20
KEYS = 50
WAITS = "retrying until it succeeds"
AWAY = {"catalog": "the catalog does not answer", "s3": "does not answer", "kafka": "Kafka"}
FILES = {
    "pipeline.yml": """\
name: orders
about: Orders and their outcomes.
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


@dataclass
class Traffic:
    """Sends events steadily, and counts the acknowledged ones."""

    servers: str
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
        producer = producer_of(self.servers, **{"enable.idempotence": True})
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


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackLake]:
    """A stack of its own, and the pipeline."""
    folder = tmp_path_factory.mktemp("away")
    for name, text in FILES.items():
        path = folder / "pipelines" / "orders" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with running_stack(folder) as lake:
        try:
            yield lake
        finally:
            for application in lake.applications:
                application.end()


def test_each_is_away_for_a_minute(shop: StackLake) -> None:
    pipeline = shop.pipeline("orders")
    traffic = Traffic(shop.servers, pipeline.streams[0].topic)
    traffic.start()
    application = shop.start("run", "orders")
    application.wait_to_say("orders.totals  build", seconds=300)
    for server in (rest_catalog.SERVER, object_store.SERVER, kafka.BROKER):
        take_away(server, shop, application)
    traffic.end()
    wait_until(
        lambda: not any(report.waiting for report in shop.verify(pipeline)), what="all to be landed", seconds=SOON_SECONDS
    )
    application.signal(signal.SIGTERM)
    assert application.wait(seconds=180) == 0, application.said()
    said = application.said()
    assert "Traceback" not in said, said
    assert "  failed: " not in said, said  # the line of a build that failed; an outage may say "failed: Connection refused"
    assert "is stopped" not in said, said
    check_verified(shop, pipeline)
    assert len(shop.rows("orders.events", "id")) == traffic.sent
    check_against_a_full_build(shop)


@pytest.mark.parametrize(
    ("command", "part", "server"),
    [
        (("land", "orders", "--once"), "landing", rest_catalog.SERVER),
        (("build", "orders"), "build", object_store.SERVER),
    ],
    ids=["land", "build"],
)
def test_command_that_is_to_end_waits_too(shop: StackLake, command: tuple[str, ...], part: str, server: Embedded) -> None:
    pipeline = shop.pipeline("orders")
    events = [{"id": f"{server.name} {number}", "k": "k0", "n": number, "cents": 1} for number in range(100)]
    produce(shop.servers, pipeline.streams[0].topic, [json.dumps(event).encode() for event in events])
    application = shop.start(*command)
    application.wait_to_say("Spark is ready")
    keep_away(server, shop, application)
    assert application.wait(seconds=240) == 0, application.said()
    check_reported(part, application, 0, why="does not answer")
    if part == "landing":
        check_verified(shop, pipeline)
    else:
        check_against_a_full_build(shop)


def take_away(server: Embedded, shop: StackLake, application: Application) -> None:
    """Has a server be away for a while, and holds the run to what it must say."""
    reported = len(application.said())
    keep_away(server, shop, application)
    # Builds need no Kafka, and what they do in the middle of a job may outlast an object store that is away.
    for part, must in (("landing", True), ("builds", server is rest_catalog.SERVER)):
        check_reported(part, application, reported, why=AWAY[server.name] if must else None)
    wait_until(
        lambda: "orders.totals  build" in application.said()[reported:].rpartition("recovered after")[2],
        what=f"tables to be built again:\n{application.said()}",
        seconds=SOON_SECONDS,
    )


def keep_away(server: Embedded, shop: StackLake, application: Application) -> None:
    """Kill a server, and start it again on its port when it was away for a while; the application must outlive that."""
    before = embedded.running(server, shop.home_settings)
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    with held(before.port):
        time.sleep(AWAY_SECONDS)
    assert application.process.poll() is None, application.said()
    after = start_server(server, shop.home_settings)
    assert (after.port, after.pid != before.pid) == (before.port, True)


@contextmanager
def held(port: int) -> Iterator[None]:
    """Keep a port for its server while the block runs: nobody listens there, and no program beside this one takes it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_until(lambda: is_bound(holder, port), what=f"port {port}")
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # else another one could bind it as well
        yield


def is_bound(holder: socket.socket, port: int) -> bool:
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def check_reported(part: str, application: Application, reported: int, *, why: str | None) -> None:
    """Hold a part of the run to one line when it begins to wait, with the reason, and one when it goes on.

    Without a reason, it need not have waited.
    """

    def lines() -> list[str]:
        return [line for line in application.said()[reported:].splitlines() if line.startswith(f"{part}: ")]

    def went_on() -> bool:
        return not any(line.endswith(WAITS) for line in lines()[-1:]) if why is None or lines() else False

    wait_until(went_on, what=f"{part} to go on:\n{application.said()}", seconds=SOON_SECONDS)
    assert [line.endswith(WAITS) for line in lines()] in ([[True, False]] if why else [[True, False], []]), lines()
    assert why is None or why in lines()[0]


def check_against_a_full_build(shop: StackLake) -> None:
    shop.run("build", "orders")
    names = [str(table.table) for table in shop.pipeline("orders").tables]
    before = {name: counted(shop, name) for name in names}
    assert all(before.values())
    shop.run("build", "orders", "--full-refresh")
    assert before == {name: counted(shop, name) for name in names}


def counted(shop: StackLake, name: str) -> Counter[str]:
    rows = [{column: value for column, value in row.items() if column not in (BUILD_ID, STATE)} for row in shop.rows(name)]
    return Counter(repr(sorted(row.items())) for row in rows)
