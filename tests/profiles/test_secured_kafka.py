"""Every client of a Kafka that wants TLS, certificates, names and passwords; and that none of it is to be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UnavailableError
from headrace.kafka.messages import read_last
from headrace.kafka.records import split_messages
from headrace.kafka.topics import admin_client, ensure_topics
from headrace.landing.batch import Range
from headrace.landing.read import RangeReader
from headrace.servers.connect import start_connect, stop_connect
from headrace.servers.kafka import find_servers, kafka
from headrace.settings import Settings, load_settings
from tests.profiles.secured_broker import KEY_PASSWORD, PASSWORD, SecuredBroker
from tests.support.topics import produce, producer_of

pytestmark = [pytest.mark.long, pytest.mark.services]


def load(secured: SecuredBroker, folder: Path, **environ: str) -> Settings:
    return load_settings(flags={}, environ={**secured.environ, **environ}, folder=folder)


@pytest.mark.parametrize("reader_name", ["batches", "client"])
@pytest.mark.parametrize("door", ["secured", "plain"])
def test_every_client_comes_in(secured: SecuredBroker, tmp_path: Path, door: str, reader_name: str) -> None:
    plain = {
        "KAFKA_BOOTSTRAP_SERVERS": secured.plain,
        "HEADRACE_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "HEADRACE_KAFKA_SASL_MECHANISM": "PLAIN",
    }
    settings = load(secured, tmp_path, HEADRACE_KAFKA_READER=reader_name, **(plain if door == "plain" else {}))
    topic = f"through-{door}-{reader_name}"
    with kafka(settings, report=lambda sentence: None) as servers:
        ensure_topics(admin_client(servers), {topic: 1})
        values = [f"{number}".encode() * 200 for number in range(3_000)]
        produce(str(servers), topic, values, producer=producer_of(str(servers), **servers.client()))
        reader = RangeReader(tuple(sorted(servers.task_config().items())))
        for _ in range(2):  # the second time with the connection of the first
            read = [
                messages
                for records in reader.read([Range(topic, 0, 0, 3_000)])
                for messages in split_messages(records, rows=500)
            ]
            assert sum(messages.places.num_rows for messages in read) == 3_000
        (last,) = read_last(servers, topic, {0: (0, 3_000)}, count=1)
        assert last.value == values[-1]
        assert PASSWORD not in repr(servers)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"HEADRACE_KAFKA_PASSWORD": "another"}, "authentication failed"),
        ({"HEADRACE_KAFKA_CA_LOCATION": "client.crt"}, "authentication failed"),
    ],
    ids=["password", "authority"],
)
def test_who_is_refused_is_told(secured: SecuredBroker, wrong: dict[str, str], says: str) -> None:
    settings = load(secured, secured.folder, **wrong)
    with pytest.raises(UnavailableError) as raised, kafka(settings, report=lambda sentence: None):
        pass
    assert says in str(raised.value)
    assert not any(secret in str(raised.value) for secret in (PASSWORD, KEY_PASSWORD, "another"))


@pytest.mark.parametrize("reader_name", ["batches", "client"])
def test_task_that_is_refused_says_so(secured: SecuredBroker, tmp_path: Path, reader_name: str) -> None:
    servers = find_servers(load(secured, tmp_path, HEADRACE_KAFKA_PASSWORD="another", HEADRACE_KAFKA_READER=reader_name))
    assert servers is not None
    with pytest.raises(UnavailableError, match="authentication failed"):
        list(RangeReader(tuple(servers.task_config().items())).read([Range("through-secured", 0, 0, 1)]))


def test_connect_comes_in_too(secured: SecuredBroker, tmp_path: Path) -> None:
    settings = load(secured, tmp_path)
    service = start_connect(settings, detached=False, report=lambda sentence: None)
    try:
        written = (settings.home / "connect" / "worker.properties").read_text(encoding="utf-8")
        logged = service.log.read_text(encoding="utf-8", errors="replace")
        assert "producer.sasl.mechanism=SCRAM-SHA-512" in written
        assert not any(secret in text for secret in (PASSWORD, KEY_PASSWORD) for text in (written, logged))
    finally:
        stop_connect(settings)
