"""The JSON API of topics, without a browser or a Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from headrace.serving.web.app import make_app
from headrace.serving.web.guard import Lock
from tests.serving.played_topics import TOPIC, PlayedTopics
from tests.serving.shop_lake import ShopLake

HOSTILE = "<script>alert(1)</script>"
MESSAGES = f"/api/topics/{TOPIC}/messages"


@pytest.fixture
def topics() -> PlayedTopics:
    return PlayedTopics([b'{"id":"a","amount":1.10}', HOSTILE.encode(), None, b"\xff\x00", b"y" * 9_000], landed=3)


@pytest.fixture
def asked(shop: ShopLake, topics: PlayedTopics) -> Iterator[TestClient]:
    app = make_app(replace(shop.context, topics=topics), Lock(None, local=True))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def test_topic_has_its_readers_and_their_lag(asked: TestClient) -> None:
    (topic,) = asked.get("/api/topics").json()["topics"]
    assert topic == {
        "name": TOPIC,
        "partitions": 1,
        "messages": 5,
        "lag": 2,
        "readers": [{"label": "shop.charges", "table": "raw.charges", "format": "json", "lag": 2}],
    }
    topic = asked.get(f"/api/topics/{TOPIC}").json()
    assert topic["offsets"] == [{"partition": 0, "low": 0, "high": 5, "lags": {"shop.charges": 2}}]
    assert asked.get(f"/api/topics/{TOPIC}/schemas").json()["schemas"][0]["origin"] == "shop.charges, json"


def test_messages_are_decoded_and_cut(asked: TestClient) -> None:
    messages = asked.get(MESSAGES).json()["messages"]
    assert [message["offset"] for message in messages] == [0, 1, 2, 3, 4]
    assert [message["value"]["form"] for message in messages] == ["json", "text", "null", "bytes", "text"]
    assert '"amount": 1.10' in messages[0]["value"]["text"]
    assert messages[3]["value"]["reason"] == "neither JSON nor text, and no schema is known"
    assert (len(messages[4]["value"]["text"]), messages[4]["value"]["size"]) == (4_000, 9_000)
    assert "9,000 bytes" in messages[4]["value"]["note"]
    assert messages[0]["headers"][0]["text"] == "t-1"
    assert [message["offset"] for message in asked.get(f"{MESSAGES}?last=2&partition=0&offset=1").json()["messages"]] == [1, 2]


@pytest.mark.parametrize("wrong", ["last=0", "last=101", "partition=-1", "offset=-1", "last=x"])
def test_invalid_parameters_are_refused(asked: TestClient, wrong: str) -> None:
    answer = asked.get(f"{MESSAGES}?{wrong}")
    assert answer.status_code == 422
    assert wrong.split("=")[0] in answer.json()["what"]


def test_unknown_topic_and_outage_of_kafka(asked: TestClient, topics: PlayedTopics) -> None:
    assert asked.get("/api/topics/nothing").status_code == 404
    topics.away = True
    answer = asked.get("/api/topics")
    assert (answer.status_code, answer.json()["next_step"]) == (503, "Run: headrace up")


def test_pages_contain_no_data(asked: TestClient) -> None:
    for path in ("/topics", f"/topics/{TOPIC}"):
        assert asked.get(path).status_code == 200
    page = asked.get(f"/topics/{HOSTILE}", headers={"Accept": "text/html"})
    assert HOSTILE not in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]


def test_messages_require_the_token(shop: ShopLake, topics: PlayedTopics) -> None:
    app = make_app(replace(shop.context, topics=topics), Lock("t" * 16, local=False))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for path in ("/api/topics", f"/api/topics/{TOPIC}", f"/api/topics/{TOPIC}/schemas", MESSAGES, "/topics"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": f"Bearer {'t' * 16}"}).status_code == 200


def test_topic_service_without_kafka_names_the_command_to_start_it(client: TestClient) -> None:
    answer = client.get("/api/topics")
    assert answer.status_code == 503
    assert "headrace up" in answer.json()["next_step"]
