"""Capture end to end, from a real Postgres through Debezium to Kafka: every change exactly once, whatever is killed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import fastavro
import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.http.client import ask
from headrace.kafka.topics import admin_client, list_bounds, list_partitions
from headrace.servers.connect import find_connect, running_connect, stop_connect
from headrace.servers.kafka import find_servers
from headrace.servers.postgres import running_postgres, stop_postgres
from headrace.servers.registry import find_registry, running_registry, stop_registry
from headrace.servers.source_database import find_database
from headrace.sessions.capturing import Capturing, capture_session, read_captured
from headrace.settings import Settings, load_settings
from headrace.spec import load_pipeline
from headrace.spec.loading.folders import BUILT_IN
from tests.support.folders import write_files
from tests.support.ports import with_own_ports
from tests.support.waiting import wait_until

pytestmark = pytest.mark.services

FILES = {
    "pipeline.yml": """\
name: NAME
about: a test
sources:
  postgres: {database: NAME, migrations: migrations, connectors: connectors, format: FORMAT}
streams:
  orders: {topic: NAME.public.orders, partitions: 2, format: json, schema: schemas/orders.sql, table: raw.orders}
""",
    "schemas/orders.sql": "id INT",
    "migrations/V1_1__tables.sql": """\
CREATE TABLE orders (id INT PRIMARY KEY, total NUMERIC(10, 2), note TEXT);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE unwanted (id INT PRIMARY KEY);
CREATE TABLE debezium_heartbeat (id INT PRIMARY KEY, at TIMESTAMPTZ NOT NULL);
CREATE TABLE debezium_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048));
INSERT INTO orders VALUES (1, 10.50, 'there before'), (2, 20.00, NULL);
""",
    "migrations/V1_2__capture.sql": """\
GRANT USAGE ON SCHEMA public TO debezium;
GRANT SELECT ON orders, debezium_heartbeat, debezium_signal TO debezium;
GRANT INSERT, UPDATE ON debezium_heartbeat TO debezium;
GRANT INSERT, DELETE ON debezium_signal TO debezium;
""",
}
SOME = 200


@dataclass(frozen=True)
class Shop:
    """A pipeline with a capture, its capture session, and its database."""

    session: Capturing
    dsn: str
    reports: list[str]

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def ask(self, question: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(question.encode()).fetchall()

    def messages(self) -> list[bytes | None]:
        """Return the values of all committed messages of the topic, by partition."""
        servers = find_servers(self.session.settings)
        assert servers is not None
        topic = self.session.pipeline.streams[0].topic
        bounds = list_bounds(admin_client(servers), [(topic, 0), (topic, 1)])
        consumer = Consumer(
            {
                "bootstrap.servers": str(servers),
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        values: list[bytes | None] = []
        try:
            for (name, partition), (low, high) in bounds.items():
                consumer.assign([TopicPartition(name, partition, low)])
                while low < high:
                    message = consumer.poll(10)
                    assert message is not None
                    if message.error():
                        break
                    values.append(message.value())
                    low = (message.offset() or 0) + 1
        finally:
            consumer.close()
        return values

    def events(self, decode: Callable[[bytes], dict[str, object]]) -> list[dict[str, object]]:
        return [decode(message) for message in self.messages() if message is not None]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, broker: str) -> Iterator[Settings]:
    folder = tmp_path_factory.mktemp("capture")
    flags = {"kafka.bootstrap_servers": broker, "services.secure": "true"}  # the registry requires a password
    loaded = load_settings(flags=flags, environ={}, folder=folder)
    loaded = with_own_ports(loaded)
    yield loaded
    for stop in (stop_connect, stop_registry, stop_postgres):
        stop(loaded)


def write_shop(folder: Path, name: str, message_format: str) -> None:
    files = {path: text.replace("NAME", name).replace("FORMAT", message_format) for path, text in FILES.items()}
    written = write_files(folder / "pipelines" / name, files)
    shutil.copytree(BUILT_IN / "storefront" / "connectors", written / "connectors")


@contextmanager
def open_shop(settings: Settings, name: str, message_format: str) -> Iterator[Shop]:
    write_shop(settings.folder, name, message_format)
    pipeline = load_pipeline(name, environ={}, folder=settings.folder)
    reports: list[str] = []
    with capture_session(settings, pipeline, report=reports.append) as session:
        session.register()
        session.wait_until_running()
        database = find_database(settings, session.capture)
        assert database is not None
        yield Shop(session, database.dsn, reports)


@pytest.fixture(scope="module")
def shop(settings: Settings) -> Iterator[Shop]:
    with open_shop(settings, "shop", "avro") as opened:
        yield opened


def from_avro(settings: Settings) -> Callable[[bytes], dict[str, object]]:
    """Return the decoder of a message by the schema id in its first five bytes."""
    schemas: dict[int, object] = {}

    def decode(message: bytes) -> dict[str, object]:
        assert message[0] == 0
        number = int.from_bytes(message[1:5], "big")
        if number not in schemas:
            answer = ask(f"{find_registry(settings)}/schemas/ids/{number}")
            schemas[number] = fastavro.parse_schema(json.loads(answer.body["schema"]))
        return dict(fastavro.schemaless_reader(io.BytesIO(message[5:]), schemas[number], None))  # type: ignore[arg-type]

    return decode


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


CHANGES = (
    "INSERT INTO orders VALUES (3, 30.25, 'new')",
    "UPDATE orders SET total = 31 WHERE id = 3",
    "DELETE FROM orders WHERE id = 2",
    "INSERT INTO unwanted VALUES (1)",
    "TRUNCATE orders",
)


def test_capture_writes_changes_in_avro(shop: Shop, settings: Settings) -> None:
    decode = from_avro(settings)
    wait_until(lambda: len(shop.messages()) == 2, what="2 messages")  # the snapshot
    shop.run(*CHANGES)
    wait_until(lambda: len(shop.messages()) == 7, what="7 messages")  # and a tombstone after the delete
    assert shop.messages().count(None) == 1
    events = shop.events(decode)
    assert Counter(str(event["op"]) for event in events) == {"r": 2, "c": 1, "u": 1, "d": 1, "t": 1}
    update = next(event for event in events if event["op"] == "u")
    before, after, source = update["before"], update["after"], update["source"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert isinstance(source, dict)
    assert (str(before["total"]), str(after["total"]), after["note"]) == ("30.25", "31.00", "new")
    assert isinstance(update["transaction"], dict)
    assert source["lsn"] > 0
    servers = find_servers(settings)
    assert servers is not None
    partitions = list_partitions(admin_client(servers))
    assert len(partitions["shop.public.orders"]) == 2
    assert "shop.public.unwanted" not in partitions


def test_capture_keeps_the_password_out_of_connect(shop: Shop, settings: Settings) -> None:
    database, connect = find_database(settings, shop.session.capture), running_connect(settings)
    assert database is not None
    assert connect is not None
    configs = json.dumps(ask(f"{find_connect(settings)}/connectors?expand=info&expand=status").body)
    assert "postgres-source-shop" in configs
    assert "database.password" in configs
    assert database.password not in configs
    assert database.password not in connect.log.read_text(encoding="utf-8")


def test_capture_role_has_only_its_grants(shop: Shop, settings: Settings) -> None:
    database = find_database(settings, shop.session.capture)
    assert database is not None
    with psycopg.connect(database.dsn, user=database.user, password=database.password) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() is not None
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM unwanted")


def test_register_is_idempotent(shop: Shop) -> None:
    reports = len(shop.reports)
    shop.session.register()
    assert shop.reports[reports:] == []
    assert [len(row) for row in shop.ask("SELECT name FROM schema_history")] == [1, 1]


def test_capture_confirms_the_wal_of_idle_tables(shop: Shop, settings: Settings) -> None:
    shop.run("INSERT INTO unwanted SELECT generate_series(2, 20000)")

    def is_read() -> bool:
        (captured,) = read_captured(settings, shop.session.pipeline)
        return captured.slot is not None and captured.slot.active and (captured.slot.lag_bytes or 0) < 100_000

    wait_until(is_read, what="the slot to follow")


def test_capture_survives_kills_of_connect_and_postgres(shop: Shop, settings: Settings) -> None:
    decode = from_avro(settings)
    inserted: list[int] = []
    stop = threading.Event()

    def insert() -> None:
        """Insert rows, each in a transaction of its own, until both servers were killed and are back."""
        numbers = count(1000)
        while not stop.is_set():
            try:
                with psycopg.connect(shop.dsn, autocommit=True) as connection:
                    while not stop.is_set():
                        number = next(numbers)
                        connection.execute("INSERT INTO orders VALUES (%s, 1, 'once')", [number])
                        inserted.append(number)
                        stop.wait(0.005)
            except psycopg.Error:
                stop.wait(0.02)

    thread = threading.Thread(target=insert, daemon=True)
    thread.start()
    connect = running_connect(settings)
    assert connect is not None
    wait_until(lambda: len(inserted) > SOME, what="rows")
    kill(connect.pid)
    wait_until(lambda: running_connect(settings) is None, what="its end")
    shop.session.check()
    assert running_connect(settings) != connect
    seen_before = len(inserted)
    wait_until(lambda: len(shop.messages()) > seen_before, what="messages after the kill", seconds=60, pause=0.5)
    server = running_postgres(settings)
    assert server is not None
    kill(server.pid)
    wait_until(lambda: running_postgres(settings) is None, what="its end")
    shop.session.check()
    seen_before = len(inserted)
    wait_until(lambda: len(inserted) > seen_before + SOME, what="rows after the kill")
    stop.set()
    thread.join()
    there = sorted(row[0] for row in shop.ask("SELECT id FROM orders WHERE note = 'once'"))  # type: ignore[type-var]
    assert set(inserted) <= set(there)

    def seen() -> list[int]:
        rows = [event["after"] for event in shop.events(decode) if event["op"] == "c"]
        return sorted(int(str(row["id"])) for row in rows if isinstance(row, dict) and row["note"] == "once")

    wait_until(lambda: len(seen()) >= len(there), what="all rows", seconds=60, pause=0.5)
    assert seen() == there  # no row lost or duplicated


def test_capture_survives_a_kill_of_the_registry(shop: Shop, settings: Settings) -> None:
    before = running_registry(settings)
    assert before is not None
    ids = {message[1:5] for message in shop.messages() if message is not None}
    kill(before.pid)
    wait_until(lambda: running_registry(settings) is None, what="its end")
    shop.session.check()
    after = running_registry(settings)
    assert after is not None
    assert after.port == before.port
    assert len(shop.events(from_avro(settings))) > SOME
    shop.run("ALTER TABLE orders ADD COLUMN more TEXT", "INSERT INTO orders VALUES (1, 1, 'wider', 'yes')")

    def is_wider() -> bool:
        return bool({message[1:5] for message in shop.messages() if message is not None} - ids)

    wait_until(is_wider, what="another schema", seconds=40)
    wider = next(event["after"] for event in shop.events(from_avro(settings)) if "'wider'" in str(event["after"]))
    assert isinstance(wider, dict)
    assert wider["more"] == "yes"


def test_capture_in_json_is_reset_and_deleted(settings: Settings) -> None:
    with open_shop(settings, "plain", "json") as shop:
        session = shop.session
        wait_until(lambda: len(shop.messages()) == 2, what="2 messages")
        shop.run("INSERT INTO orders VALUES (3, 30.25, 'new')")
        wait_until(lambda: len(shop.messages()) == 3, what="3 messages")
        events = shop.events(json.loads)
        assert [sorted(event) for event in events] == [["payload", "schema"]] * 3
        payloads = [event["payload"] for event in events]
        assert Counter(payload["op"] for payload in payloads if isinstance(payload, dict)) == {"r": 2, "c": 1}

        session.delete()
        session.register()
        session.wait_until_running()
        wait_until(lambda: len(shop.messages()) == 6, what="6 messages")  # a new snapshot of three rows

        session.delete()
        assert shop.ask("SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'plain'") == []
        assert shop.ask("SELECT pubname FROM pg_publication") == []
        (captured,) = read_captured(settings, session.pipeline)
        assert (captured.status.state, captured.slot) == ("MISSING", None)
        session.check()
        session.check()
        assert [line for line in shop.reports if "nothing is captured" in line] == [shop.reports[-1]]  # reported once
        session.delete()  # idempotent
        assert shop.reports[-1] == "Connector postgres-source-plain: was not registered; slot plain: did not exist"


def test_check_reports_and_restarts_a_failed_connector(shop: Shop, settings: Settings) -> None:
    """Revoked rights make the snapshot fail; once they are granted again, the next check restarts the connector."""
    session = replace(shop.session, report=shop.reports.append)
    session.delete()
    shop.run("REVOKE SELECT ON orders FROM debezium")
    session.register()
    wait_until(lambda: read_captured(settings, session.pipeline)[0].status.problems, what="a failure", seconds=40)
    session.check()
    assert any("failed:" in line and "permission denied" in line for line in shop.reports), shop.reports
    shop.run("GRANT SELECT ON orders TO debezium")

    def runs() -> bool:
        session.check()
        return read_captured(settings, session.pipeline)[0].status.is_running

    wait_until(runs, what="it to run again", seconds=40)


def test_read_captured_starts_no_server(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    write_shop(tmp_path, "shop", "avro")
    (captured,) = read_captured(settings, load_pipeline("shop", environ={}, folder=tmp_path))
    assert (captured.status.name, captured.status.state, captured.slot) == (
        "postgres-source-shop",
        "Connect is not running",
        None,
    )
    assert not settings.home.exists()
