"""The broker dies while landing runs, and comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.settings import Settings, load_settings
from tests.support.lake import Lake, check_exactly_once, send_lineage
from tests.support.ports import with_own_ports
from tests.support.topics import make_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.services


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Settings]:
    settings = with_own_ports(load_settings(flags={}, environ={}, folder=tmp_path / "broker"))
    yield settings
    stop_kafka(settings)


def test_broker_is_killed_and_comes_back(make_lake: Callable[[str], Lake], own_broker: Settings) -> None:
    before = start_kafka(own_broker, detached=True, report=lambda sentence: None)
    lake = make_lake(before.bootstrap_servers)
    make_topic(lake.servers, lake.topic, partitions=10)
    sent, good = send_lineage(lake, 1000, seed=1, partitions=10)
    application = lake.start("run", "lineage")
    application.wait_to_say("checkpoint 1")
    more, more_good = send_lineage(lake, 20_000, seed=2, partitions=10)
    os.kill(before.pid, signal.SIGKILL)
    application.wait_to_say("retrying until")
    after = start_kafka(own_broker, detached=True, report=lambda sentence: None)
    assert (after.port, after.pid != before.pid) == (before.port, True)
    last, last_good = send_lineage(lake, 1000, seed=3, partitions=10)
    good |= more_good | last_good
    wait_until(lambda: len(lake.rows("lineage.events", "uuid")) >= len(good), what="all rows", seconds=90)
    wait_until(lambda: all(not one.waiting for one in lake.verify()), what="all messages")
    application.signal(signal.SIGTERM)
    assert application.wait() == 0, application.said()
    check_exactly_once(lake, sent + more + last, good=good)
