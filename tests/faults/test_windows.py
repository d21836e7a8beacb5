"""Windows in Postgres are those of a batch over the lake, whoever is killed in the middle of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.servers.postgres import running_postgres, stop_postgres
from headrace.settings import load_settings
from tests.support.application import Application
from tests.support.lake import Lake, check_verified
from tests.support.ports import with_own_ports
from tests.support.topics import make_topic, produce, producer_of
from tests.support.waiting import wait_until
from tests.support.weather import published, readings, recompute

pytestmark = [pytest.mark.services, pytest.mark.long]

TOPIC = "weather"
PUBLISHED = " to Postgres table weather"


@contextmanager
def readings_keep_coming(lake: Lake) -> Iterator[None]:
    """Send readings of now and of hours ago, some 300 a second, while the block runs; a broker that is away is waited for."""
    stop = Event()
    producer = producer_of(lake.servers, **{"enable.idempotence": True, "message.timeout.ms": 120_000})

    def send() -> None:
        for seed in count(100):
            if stop.is_set():
                return
            produce(
                lake.servers, TOPIC, readings(60, seed=seed, at=datetime.now(timezone.utc)), partitions=2, producer=producer
            )
            time.sleep(0.2)

    thread = Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)
        assert not thread.is_alive()


def wait_to_publish_again(application: Application) -> None:
    before = application.said().count(PUBLISHED)
    wait_until(lambda: application.said().count(PUBLISHED) > before + 1, what="something published", seconds=90)


def test_application_postgres_and_broker_are_killed_in_the_middle_of_windows(
    make_lake: Callable[[str], Lake], tmp_path: Path
) -> None:
    broker = with_own_ports(load_settings(flags={}, environ={}, folder=tmp_path / "broker"))
    service = start_kafka(broker, detached=True, report=lambda sentence: None)
    lake = make_lake(service.bootstrap_servers)
    try:
        make_topic(lake.servers, TOPIC, partitions=2)
        with readings_keep_coming(lake):
            first = lake.start("run", "weather")
            first.wait_to_say(PUBLISHED, seconds=120)
            first.signal(signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
            second = lake.start("run", "weather")
            second.wait_to_say(PUBLISHED, seconds=120)
            database = running_postgres(lake.settings())
            assert database is not None
            os.kill(database.pid, signal.SIGKILL)
            wait_to_publish_again(second)
            assert second.said().count("Postgres is ready") >= 2
            os.kill(service.pid, signal.SIGKILL)
            second.wait_to_say("retrying until")
            again = start_kafka(broker, detached=True, report=lambda sentence: None)
            assert again.port == service.port
            wait_to_publish_again(second)
        pipeline = lake.pipeline("weather")
        wait_until(lambda: all(not one.waiting for one in lake.verify(pipeline)), what="all to be landed", seconds=60)
        dsn = running_postgres(lake.settings())
        assert dsn is not None
        wait_until(lambda: published(dsn.dsn) == recompute(lake), what="Postgres to have all minutes", seconds=60)
        assert len(published(dsn.dsn)) > 100
        second.signal(signal.SIGTERM)
        assert second.wait() == 0, second.said()
        check_verified(lake, pipeline)
        with psycopg_database(lake) as connection:
            assert published(connection) == recompute(lake)
    finally:
        stop_kafka(broker)
        stop_postgres(lake.settings())


@contextmanager
def psycopg_database(lake: Lake) -> Iterator[str]:
    """Yield the home's Postgres, started again on what it has kept."""
    from headrace.servers.postgres import postgres

    with postgres(lake.settings(), report=lambda sentence: None) as dsn:
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM headrace_published").fetchone() == (1,)
        yield dsn
