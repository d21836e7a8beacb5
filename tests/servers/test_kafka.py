"""The real broker: it starts once, restarts on its data, and leaves no orphan process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ServiceError
from headrace.servers import kafka_server
from headrace.servers.kafka import kafka, running_kafka, start_kafka, stop_kafka
from headrace.servers.status import list_services, read_log
from headrace.settings import Settings, load_settings
from tests.support.processes import is_gone, taken
from tests.support.waiting import wait_until

pytestmark = pytest.mark.services

USER = """
import os, sys, time
from pathlib import Path
from headrace.servers.kafka import kafka, running_kafka
from headrace.settings import load_settings
settings = load_settings(flags={}, environ={}, folder=Path(sys.argv[1]))
with kafka(settings, report=lambda line: None) as servers:
    print(running_kafka(settings).pid, servers, flush=True)
    sys.stdin.readline()
"""


def quiet(servers: str) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": servers, "log_level": 0}


def create_topic(servers: str, name: str) -> None:
    client = AdminClient(quiet(servers))  # lives until the answer: its end would end the request
    for created in client.create_topics([NewTopic(name, 1, 1)]).values():
        created.result(60)


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({**quiet(servers), "message.max.bytes": kafka_server.MAX_MESSAGE_BYTES})
    failed: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**quiet(servers), "group.id": "test", "fetch.message.max.bytes": 20_000_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


def start_user(folder: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(folder)]
    return subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def read_pid(user: subprocess.Popen[str]) -> int:
    assert user.stdout is not None
    return int(user.stdout.readline().split()[0])


def test_one_broker_is_shared_and_stopped_with_its_last_user(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    with kafka(settings, report=said.append) as address:
        servers, service = str(address), running_kafka(settings)
        assert service is not None
        assert said[-1].startswith(f"Kafka is ready on {servers}")
        assert not service.detached
        with kafka(settings, report=said.append) as again:
            assert again == address
        status = list_services(settings)[0]
        assert (status.state, status.pid, status.address) == ("running", service.pid, servers)
        assert any("started" in line for line in read_log(settings, "kafka", 500))

        create_topic(servers, "large")
        produce(servers, "large", [b"x" * 12_000_000])
        assert [len(value) for value in consume(servers, "large", 1)] == [12_000_000]
    assert is_gone(service.pid)
    assert running_kafka(settings) is None
    assert list_services(settings)[0].state == "stopped"


def test_kill_and_restart_keep_the_data_and_the_port(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    first = start_kafka(settings, detached=True, report=said.append)
    assert first.detached
    assert start_kafka(settings, detached=True, report=said.append) == first
    create_topic(first.bootstrap_servers, "kept")
    produce(first.bootstrap_servers, "kept", [b"one", b"two"])
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: is_gone(first.pid), what="its end")
    assert running_kafka(settings) is None
    assert list_services(settings)[0].state == "died"
    second = start_kafka(settings, detached=True, report=said.append)
    assert second.port == first.port
    assert second.pid != first.pid
    produce(second.bootstrap_servers, "kept", [b"three"])
    assert consume(second.bootstrap_servers, "kept", 3) == [b"one", b"two", b"three"]
    assert stop_kafka(settings)
    assert is_gone(second.pid)


def test_no_orphan_after_sigkill_and_a_second_command_keeps_it(tmp_path: Path, child_environ: dict[str, str]) -> None:
    first, second = start_user(tmp_path, child_environ), start_user(tmp_path, child_environ)
    try:
        pid = read_pid(first)
        assert read_pid(second) == pid  # two commands that start at once share one broker
        first.kill()
        first.communicate()
        time.sleep(1.0)
        assert not is_gone(pid)
        second.kill()
        second.communicate()
        wait_until(lambda: is_gone(pid), what="its end")
    finally:
        for user in (first, second):
            user.kill()
            user.communicate()
        stop_kafka(load_settings(flags={}, environ={}, folder=tmp_path))


def test_taken_port_is_avoided(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    with taken(settings.kafka_port), kafka(settings, report=said.append) as servers:
        assert str(servers) != f"127.0.0.1:{settings.kafka_port}"
        create_topic(str(servers), "works")
    assert any(line.startswith(f"Port {settings.kafka_port} is taken") for line in said)


def test_broker_that_dies_while_it_starts(settings_for: Callable[..., Settings], said: list[str]) -> None:
    settings = settings_for()
    data = settings.home / "kafka" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\nnode.id=99\ncluster.id=other\n")
    with pytest.raises(ServiceError) as caught:
        start_kafka(settings, detached=False, report=said.append)
    assert "its storage is damaged or from another version" in caught.value.what
    assert "node id 99" in caught.value.what
    assert caught.value.where == str(settings.logs / "kafka.log")
    assert f"mv {settings.home / 'kafka'}" in caught.value.next_step
    assert list_services(settings)[0].state == "stopped"
