"""Events over HTTP: acknowledged once Kafka has them, or refused with a reason, and never lost silently."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from fastapi.testclient import TestClient

from headrace.kafka.client import KafkaServers
from headrace.sources.receiving import app_with, receiving_app
from headrace.sources.webhooks import STANDARD
from headrace.spec import load_pipeline
from headrace.spec.model.pipeline import Pipeline
from tests.support.folders import write_files
from tests.support.topics import make_topic
from tests.support.webhooks import KeptProducer

pytestmark = pytest.mark.services

OWN = {
    "pipeline.yml": """\
name: mine
about: a test
sources:
  http: {file: sources/take.py, port: 9000}
streams:
  events: {topic: own-receiver, format: json, schema: schemas/event.sql, table: raw.events, max_record_bytes: 200}
""",
    "schemas/event.sql": "name STRING, number BIGINT",
    "sources/take.py": """\
from __future__ import annotations
from pydantic import BaseModel
from headrace import Received, receive
from ._words import GREETING

class Body(BaseModel):
    name: str
    number: int = 7

@receive("/things", stream="events", method="POST")
def take(body: Body) -> Received:
    if body.name == "boom":
        raise RuntimeError("secret words")
    return Received(event=body.model_dump(), answer={"said": GREETING})
""",
    "sources/_words.py": "GREETING = 'taken'\n",
}


@pytest.fixture
def client(weather: Pipeline, broker: str) -> Iterator[TestClient]:
    make_topic(broker, weather.streams[0].topic, partitions=weather.streams[0].partitions)
    with TestClient(receiving_app(weather, bootstrap_servers=KafkaServers(broker)), raise_server_exceptions=False) as client:
        yield client


def read_topic(servers: str, topic: str, partitions: int) -> list[dict[str, str]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "log_level": 0})
    parts = [TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = [consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts]
    consumer.assign(parts)
    events: list[dict[str, str]] = []
    deadline = time.monotonic() + 60
    while len(events) < sum(ends) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            events.append(json.loads(message.value() or b""))
    consumer.close()
    return events


def test_receiver_sends_a_reading_and_answers_as_the_reference(client: TestClient, weather: Pipeline, broker: str) -> None:
    before = datetime.now(timezone.utc)
    answer = client.get("/log", params={"city": "New York", "temperature": "72.50"})
    hours = {moment.strftime("%Y-%m-%d-%H") for moment in (before, datetime.now(timezone.utc))}
    assert answer.status_code == 200
    data = answer.json()["data"]
    assert answer.json() == {"status": "success", "message": "Weather data logged", "data": data}
    assert data == {"city": "New York", "temperature": "72.50", "ts": data["ts"]}
    assert data["ts"] in hours
    assert client.get("/health").json() == {"status": "healthy"}
    assert client.get("/log", params={"city": "<script>alert(1)</script>", "temperature": "-1e-2"}).status_code == 200
    second, first = sorted(read_topic(broker, weather.streams[0].topic, 2), key=lambda event: event["city"])
    event_time = first.pop("event_time")
    assert first == data
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event_time)
    moment = datetime.fromisoformat(event_time.replace("Z", "+00:00"))
    assert before - timedelta(milliseconds=1) <= moment <= datetime.now(timezone.utc)
    assert (second["city"], second["temperature"]) == ("<script>alert(1)</script>", "-1e-2")


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no city": ({"temperature": "1"}, "city is missing: add it to the request"),
    "no temperature": ({"city": "x"}, "temperature is missing: add it to the request"),
    "nothing": ({}, "city is missing: add it to the request; temperature is missing: add it to the request"),
    "empty city": ({"city": "", "temperature": "1"}, "city: it is empty: write the name of a city"),
    "blank city": ({"city": " \u3000", "temperature": "1"}, "city: it is empty: write the name of a city"),
    "long city": ({"city": "x" * 256, "temperature": "1"}, "city: it has 256 characters: write at most 255"),
    "NUL in city": ({"city": "a\0b", "temperature": "1"}, "city: it has a control character in it: write letters"),
    "word": ({"city": "x", "temperature": "hot"}, 'temperature: "hot" is not a number: write degrees Fahrenheit, such as 72.5'),
    "digits of another script": (
        {"city": "x", "temperature": "٧٢"},
        'temperature: "٧٢" is not a number: write degrees Fahrenheit',
    ),
    "underscore": ({"city": "x", "temperature": "7_2"}, 'temperature: "7_2" is not a number'),
    "empty": ({"city": "x", "temperature": ""}, 'temperature: "" is not a number'),
    "infinite": ({"city": "x", "temperature": "-Infinity"}, 'temperature: "-Infinity" is not a finite number'),
    "not a number": ({"city": "x", "temperature": "nan"}, 'temperature: "nan" is not a finite number'),
    "becomes infinite": ({"city": "x", "temperature": "1e999"}, "temperature: 1e999 degrees Fahrenheit can't be"),
    "absurd": ({"city": "x", "temperature": "150.01"}, "temperature: 150.01 degrees Fahrenheit can't be: write a number from"),
    "too cold": ({"city": "x", "temperature": "-460"}, "temperature: -460 degrees Fahrenheit can't be: write a number from"),
    "endless": ({"city": "x", "temperature": "1." + "0" * 60}, "temperature: it has too many digits"),
}


def test_receiver_refuses_invalid_readings_with_a_reason(client: TestClient, weather: Pipeline, broker: str) -> None:
    for name, (params, message) in REFUSED.items():
        answer = client.get("/log", params=params)
        assert (name, answer.status_code, set(answer.json())) == (name, 422, {"status", "message"})
        assert answer.json()["status"] == "error", name
        assert answer.json()["message"].startswith(message), (name, answer.json())
    for method, path, status in (("GET", "/nowhere", 404), ("POST", "/log", 405), ("DELETE", "/health", 405)):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["status"]) == (status, "error")
        assert "/openapi.json" in answer.json()["message"]
    assert client.post("/log").headers["allow"] == "GET"
    assert client.get("/docs").status_code == 404  # the page would load scripts from other hosts
    assert read_topic(broker, weather.streams[0].topic, 2) == []


def test_receiver_normalises_blanks_and_accents(client: TestClient, weather: Pipeline, broker: str) -> None:
    for city in ("São Paulo", "Sa\u0303o  Paulo ", "\u00a0São\u3000Paulo"):
        answer = client.get("/log", params={"city": city, "temperature": "72.5"})
        assert (answer.status_code, answer.json()["data"]["city"]) == (200, "São Paulo")
    assert client.get("/log", params={"city": "e\u0301" * 255, "temperature": "1"}).status_code == 200, "255 letters"
    events = read_topic(broker, weather.streams[0].topic, 2)
    assert sorted({event["city"] for event in events}) == ["São Paulo", "é" * 255]


@pytest.mark.parametrize("city", ["S%E3o%20Paulo", "%zz", "100%", "%C3", "%ed%a0%80", "%c0%80", "a%2", "%"])
def test_receiver_refuses_invalid_percent_encodings(city: str, weather: Pipeline) -> None:
    producer = KeptProducer()
    with TestClient(app_with(producer, weather, environ={}, limits=STANDARD)) as client:
        answer = client.get(f"/log?temperature=1&city={city}")
        assert (answer.status_code, answer.json()["status"]) == (400, "error")
        assert "percent-encod" in answer.json()["message"]
        assert client.get("/log?temperature=1&city=100%25").status_code == 200
        assert client.get("/log?temperature=1&city=S%C3%A3o+Paulo%20%26").status_code == 200
    assert [event["city"] for _, event in producer.events] == ["100%", "São Paulo &"]


def test_receiver_acknowledges_nothing_during_an_outage_of_kafka(weather: Pipeline) -> None:
    app = receiving_app(weather, bootstrap_servers=KafkaServers("127.0.0.1:1"), wait_seconds=0.5)
    with TestClient(app) as client:
        began = time.monotonic()
        answer = client.get("/log", params={"city": "New York", "temperature": "72.5"})
        assert time.monotonic() - began < 30
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["status"] == "error"
        assert answer.json()["message"].startswith("Kafka has not acknowledged the event")
        assert client.get("/health").status_code == 503


def test_receiver_works_for_any_pipeline(tmp_path: Path, broker: str) -> None:
    write_files(tmp_path / "pipelines" / "mine", OWN)
    pipeline = load_pipeline("mine", environ={}, folder=tmp_path)
    make_topic(broker, "own-receiver")
    with TestClient(receiving_app(pipeline, bootstrap_servers=KafkaServers(broker)), raise_server_exceptions=False) as client:
        assert client.post("/things", json={"name": "a"}).json() == {"said": "taken"}
        assert client.post("/things", json={"name": "a", "number": "x"}).json()["message"].startswith("number: Input should be")
        large = client.post("/things", json={"name": "a" * 300})
        assert (large.status_code, large.json()["status"]) == (413, "error")
        failed = client.post("/things", json={"name": "boom"})
        assert (failed.status_code, "secret" in failed.text) == (500, False)
    assert read_topic(broker, "own-receiver", 1) == [{"name": "a", "number": 7}]
