"""Webhooks: valid signed requests reach their topic, and all others are refused with a reason."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook
from starlette.types import Message

from headrace.errors import SettingsError
from headrace.sources.receiving import app_with
from headrace.sources.signatures import SignedRequest, sign
from headrace.sources.webhooks import MAX_PAYLOADS, STANDARD, Limits, Lock, TooManyError, _payloads
from headrace.spec import load_pipeline
from headrace.spec.model.pipeline import SignatureScheme
from tests.support.folders import write_files
from tests.support.webhooks import OWN_STREAMS, SECRETS, KeptProducer, Shop, commerce, shop

ORDER = {
    "id": 820982911946154508,
    "email": "łucja@example.com",
    "order_number": 7,
    "customer": {"id": 1, "tags": []},
    "test": True,
}
CHARGE = {"id": "ch_1", "object": "charge", "amount": 1250, "billing_details": {"name": "Ł"}, "created": 1_767_225_600}
EVENT = {"id": "evt_1", "type": "charge.succeeded", "created": 1_767_225_601, "data": {"object": CHARGE}}
CONTACT = {"eventId": 1, "subscriptionType": "contact.creation", "objectId": 9, "occurredAt": 1_767_225_600_000}

WRONG = {"stripe-signature": "t=1,v1=0"}


@pytest.fixture
def here() -> Iterator[Shop]:
    with shop() as running:
        yield running


def test_webhook_sends_a_shopify_order_unchanged(here: Shop) -> None:
    before = datetime.now(timezone.utc)
    answer = here.post("shopify", ORDER, x_shopify_topic="orders/create", x_shopify_webhook_id="w-1")
    assert (answer.status_code, answer.json()) == (200, {"status": "accepted", "events": 1, "unknown": 0})
    ((topic, value, key),) = here.producer.sent
    event = json.loads(value)
    loaded_at = datetime.fromisoformat(event.pop("_loaded_at").replace("Z", "+00:00"))
    assert (topic, key) == ("shopify.orders", b"820982911946154508")
    assert event == {
        **ORDER,
        "id": "820982911946154508",
        "customer": '{"id": 1, "tags": []}',
        "_webhook_topic": "orders/create",
        "_event_id": "w-1",
    }
    assert before <= loaded_at <= datetime.now(timezone.utc)


def test_webhook_sends_stripe_and_hubspot_events_to_their_topics(here: Shop) -> None:
    assert here.post("stripe", EVENT).status_code == 200
    change = {**CONTACT, "eventId": 2, "subscriptionType": "company.propertyChange", "propertyName": "city"}
    assert here.post("hubspot", [CONTACT, change]).json() == {"status": "accepted", "events": 2, "unknown": 0}
    newer = {**CONTACT, "subscriptionType": "object.creation", "objectTypeId": "0-1"}
    assert here.post("hubspot", newer).status_code == 200
    assert here.post("hubspot", []).json()["events"] == 0
    (_, charge), (_, contact), (_, company), (last, _) = here.producer.events
    assert [topic for topic, _ in here.producer.events] == [
        "stripe.charges",
        "hubspot.contacts",
        "hubspot.companies",
        "hubspot.contacts",
    ]
    assert last == "hubspot.contacts"
    assert (charge["id"], charge["amount"], charge["billing_details"]) == ("ch_1", 1250, '{"name": "Ł"}')
    assert (charge["_webhook_topic"], charge["_event_id"], charge["event_created"]) == (
        "charge.succeeded",
        "evt_1",
        1_767_225_601,
    )
    assert (contact["id"], contact["_event_id"], contact["occurred_at"]) == ("9", "1", 1_767_225_600_000)
    assert (company["property_name"], company["_webhook_topic"]) == ("city", "company.propertyChange")
    assert [key for _, _, key in here.producer.sent] == [b"ch_1", b"9", b"9", b"9"]


def test_webhook_keeps_an_event_of_unknown_type(here: Shop) -> None:
    about = {"id": "in_1", "object": "invoice", "total": 12.50}
    answers = [
        here.post("shopify", {"cart": "ü"}, x_shopify_topic="carts/update", x_shopify_webhook_id="w-2"),
        here.post("shopify", {"customer": {"id": 1}}, x_shopify_topic="customers/redact", x_shopify_webhook_id="w-3"),
        here.post("shopify", {"a": 1}),
        here.post("stripe", {"id": "evt_2", "type": "invoice.paid", "data": {"object": about}}),
        here.post("stripe", {"id": "evt_3", "type": "customer.source.created", "data": {"object": {"object": "card"}}}),
        here.post("stripe", {"data": "nothing"}),
        here.post("hubspot", [CONTACT, {"eventId": 5, "subscriptionType": "deal.creation"}]),
    ]
    assert {answer.status_code for answer in answers} == {202}
    unknown = [(topic, event["_webhook_topic"], event["_event_id"]) for topic, event in here.producer.events]
    assert unknown[:2] == [("shopify.other", "carts/update", "w-2"), ("shopify.other", "customers/redact (unconfirmed)", "w-3")]
    assert unknown[3:5] == [("stripe.other", "invoice.paid", "evt_2"), ("stripe.other", "customer.source.created", "evt_3")]
    assert unknown[6:] == [("hubspot.contacts", "contact.creation", "1"), ("hubspot.other", "deal.creation", "5")]
    for at in (2, 5):
        assert unknown[at][1] == ""
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", unknown[at][2])
    assert here.producer.events[0][1]["payload"] == '{"cart": "ü"}'
    assert json.loads(here.producer.events[3][1]["payload"])["data"]["object"] == about


REDACTION = {
    "shop_id": 1,
    "shop_domain": "headrace-coffee.myshopify.com",
    "customer": {"id": 2, "email": "ann@example.com", "phone": None},
    "orders_to_redact": [3],
}


@pytest.mark.parametrize(
    ("changes", "shop", "confirmed"),
    [
        ({}, "headrace-coffee.myshopify.com", True),
        ({}, "Headrace-Coffee.myshopify.com", True),
        ({}, "another.myshopify.com", False),
        ({}, "", False),
        ({"shop_domain": "another.myshopify.com"}, "another.myshopify.com", False),
        ({"data_request": {"id": 4}}, "headrace-coffee.myshopify.com", False),
        ({"line_items": []}, "headrace-coffee.myshopify.com", False),
        ({"customer": None}, "headrace-coffee.myshopify.com", False),
        ({"orders_to_redact": "all"}, "headrace-coffee.myshopify.com", False),
    ],
)
def test_webhook_accepts_a_redaction_only_for_its_own_shop(
    here: Shop, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], shop: str, confirmed: bool
) -> None:
    monkeypatch.setenv("SHOPIFY_SHOP_DOMAINS", "headrace-coffee.myshopify.com")
    body = {**REDACTION, **changes}
    for identity in ("w-1", "w-2"):
        here.post(
            "shopify",
            body,
            x_shopify_webhook_id=identity,
            x_shopify_topic="customers/redact",
            x_shopify_shop_domain=shop,
        )
    first, second = (event for _, event in here.producer.events)
    assert first["_webhook_topic"] == ("customers/redact" if confirmed else "customers/redact (unconfirmed)")
    if confirmed:
        assert first["_event_id"] == second["_event_id"], "a repeat under another id is the same request"


def test_webhook_does_not_take_a_signed_order_as_a_redaction(here: Shop) -> None:
    here.post("shopify", ORDER, x_shopify_topic="customers/redact", x_shopify_shop_domain="headrace-coffee.myshopify.com")
    assert here.producer.events[0][1]["_webhook_topic"] == "customers/redact (unconfirmed)"


def test_webhook_gives_a_retry_the_same_id(here: Shop) -> None:
    for _ in range(2):
        here.post("shopify", ORDER, x_shopify_topic="orders/create", x_shopify_webhook_id="w-1")
        here.post("shopify", ORDER, x_shopify_topic="orders/create")
        here.post("stripe", EVENT)
        here.post("hubspot", [{**CONTACT, "attemptNumber": 1}])
    ids = [event["_event_id"] for _, event in here.producer.events]
    assert ids[:4] == ids[4:]
    assert len(set(ids)) == 4


def test_webhook_payload_cannot_set_server_fields(here: Shop) -> None:
    forged = {**ORDER, "_webhook_topic": "x", "_event_id": "x", "_loaded_at": "1999-01-01", "kafka_offset": 1}
    here.post("shopify", forged, x_shopify_topic="orders/create", x_shopify_webhook_id="w-1")
    (_, event) = here.producer.events[0]
    assert (event["_webhook_topic"], event["_event_id"]) == ("orders/create", "w-1")
    assert not event["_loaded_at"].startswith("1999")


def test_webhook_refuses_invalid_signatures(here: Shop) -> None:
    long_ago, ahead = (datetime.now(timezone.utc) + timedelta(seconds=seconds) for seconds in (-302, 360))
    refused = {
        "wrong secret": here.post("shopify", ORDER, secret="another"),
        "no signature": here.client.post("/webhooks/stripe", json=EVENT),
        "another provider's": here.post("shopify", ORDER, scheme="stripe", x_shopify_topic="orders/create"),
        "stale": here.post("stripe", EVENT, now=long_ago),
        "ahead": here.post("stripe", EVENT, now=ahead),
        "stale list": here.post("hubspot", [CONTACT], now=long_ago),
        "version 1": here.post("hubspot", [CONTACT], scheme="hubspot-v1"),
        "not JSON and not signed": here.client.post("/webhooks/stripe", content=b"\xff"),
    }
    assert {name: answer.status_code for name, answer in refused.items()} == dict.fromkeys(refused, 401)
    assert all("www-authenticate" in answer.headers for answer in refused.values())
    assert "more than 300 seconds" in refused["stale"].json()["message"]
    assert here.producer.sent == []
    messages = " ".join(answer.text for answer in refused.values())
    assert not any(secret in messages for secret in SECRETS.values())


NOT_JSON = {
    "nothing": b"",
    "cut off": b'{"id": 1',
    "not UTF-8": b'{"id": "\xff"}',
    "UTF-16": '{"id": 1}'.encode("utf-16"),
    "a mark first": b'\xef\xbb\xbf{"id": 1}',
    "not a number": b'{"id": NaN}',
    "two": b"{}{}",
    "a control character": b'{"id": "\x00"}',
    "a list": b"[{}]",
    "a text": b'"text"',
    "a number": b"1",
    "null": b"null",
    "deep": b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_webhook_refuses_a_body_that_is_not_a_json_object(here: Shop, name: str) -> None:
    answer = here.post("shopify", NOT_JSON[name], x_shopify_topic="orders/create")
    assert (answer.status_code, answer.json()["status"]) == (400, "error")
    assert answer.json()["message"].startswith("invalid body: it is ")
    assert here.producer.sent == []
    assert here.post("hubspot", b"[1]").status_code == 400


def test_webhook_keeps_an_unpaired_surrogate_as_its_escape(here: Shop) -> None:
    body = (
        rb'{"id": 1, "email": "a\ud800b\uDFFF", "note": "\ud83d\ude00\\ud800", "customer": {"id": 2, "first_name": "\udead"}}'
    )
    assert here.post("shopify", body, x_shopify_topic="orders/create").status_code == 200
    ((_, event),) = here.producer.events
    assert (event["email"], event["note"]) == ("a\\ud800b\\uDFFF", "😀\\ud800")
    assert json.loads(event["customer"])["first_name"] == "\\udead"
    assert here.post("shopify", rb'{"\ud800": 1}', x_shopify_topic="app/uninstalled").status_code == 202
    assert here.post("hubspot", rb'[{"subscriptionType": "contact.creation", "objectId": "\ud800"}]').status_code == 200
    for _, value, _ in here.producer.sent:
        msgspec.json.decode(value)  # landing can read it


def test_webhook_refuses_a_large_body() -> None:
    with shop(limits=Limits(max_body_bytes=1_000)) as here:
        fits = json.dumps({"a": "x" * 991}).encode()
        assert len(fits) == 1_000
        assert here.post("stripe", fits).status_code == 202
        for length in (1_001, 5_000, 100_000):
            answer = here.post("stripe", b"x" * length)
            assert (answer.status_code, answer.json()["message"][:37]) == (413, "the body has more than 1,000 bytes: s")
        chunked = here.client.post("/webhooks/stripe", content=(b"x" * 100 for _ in range(11)), headers=WRONG)
        assert chunked.status_code == 413
        assert len(here.producer.sent) == 1
    with shop() as here:
        assert here.post("hubspot", [CONTACT] * MAX_PAYLOADS).status_code == 200
        assert here.post("hubspot", [CONTACT] * (MAX_PAYLOADS + 1)).status_code == 413


def test_webhook_refuses_a_long_list_before_building_it(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"[" + b",".join([b"{}"] * 349_000) + b"]"
    tracemalloc.start()
    with pytest.raises(TooManyError):
        _payloads(body, batches=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000, "the copy of the text, and a thousand payloads"
    with shop() as here:
        answer = here.post("hubspot", body)
        assert (answer.status_code, answer.json()["message"]) == (
            413,
            "the body has more than 1,000 events: send fewer at once",
        )


@pytest.mark.parametrize("deep", [b'{"a":' * 50_000 + b"1" + b"}" * 50_000, b"[" * 50_000 + b"]" * 50_000])
@pytest.mark.parametrize("provider", ["stripe", "hubspot"])
def test_webhook_refuses_deep_nesting(deep: bytes, provider: str) -> None:
    with shop() as here:
        assert here.post(provider, deep).status_code == 400


def test_webhook_refuses_an_unsigned_request_before_reading_its_body() -> None:
    app = app_with(KeptProducer(), commerce(), environ=SECRETS, limits=STANDARD)
    answered: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        answered.append(message)

    path = "/webhooks/stripe"
    scope = {"type": "http", "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode(), "headers": []}
    asyncio.run(app({**scope, "query_string": b""}, receive, send))
    assert answered[0]["status"] == 401


def test_webhook_bodies_of_unknown_senders_share_a_budget() -> None:
    """400 senders of a megabyte with a wrong signature: not more than the budget is in memory, and all are answered."""
    app = app_with(KeptProducer(), commerce(), environ=SECRETS, limits=STANDARD)
    path, headers = "/webhooks/stripe", [(name.encode(), value.encode()) for name, value in WRONG.items()]
    scope = {"type": "http", "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode(), "headers": headers}
    statuses: Counter[int] = Counter()

    async def send_slowly(begun: asyncio.Event) -> None:
        sent = 0

        async def receive() -> Message:
            nonlocal sent
            sent += 1
            if sent == 15:
                await begun.wait()  # until every sender has sent nearly all
            return {"type": "http.request", "body": bytes(65_536), "more_body": sent < 16}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[int(message["status"])] += 1

        await app({**scope, "query_string": b""}, receive, send)

    async def attack() -> int:
        begun = asyncio.Event()
        senders = [asyncio.ensure_future(send_slowly(begun)) for _ in range(400)]
        await asyncio.sleep(0.2)
        held = tracemalloc.get_traced_memory()[0]
        begun.set()
        await asyncio.gather(*senders)
        return held

    tracemalloc.start()
    held = asyncio.run(attack())
    tracemalloc.stop()
    assert held < 80 * 1024**2, "the budget, and the free beginning of each"
    assert sum(statuses.values()) == 400
    assert set(statuses) <= {401, 429}
    assert statuses[401] > 30


def test_webhook_times_out_a_body_that_does_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_with(KeptProducer(), commerce(), environ=SECRETS, limits=STANDARD)

    def status_of(*messages: Message) -> int:
        left, answered = list(messages), list[Message]()

        async def receive() -> Message:
            if not left:
                await asyncio.sleep(60)
            return left.pop(0)

        async def send(message: Message) -> None:
            answered.append(message)

        path = "/webhooks/stripe"
        headers = [(name.encode(), value.encode()) for name, value in WRONG.items()]
        scope = {
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "headers": headers,
        }
        asyncio.run(app({**scope, "query_string": b""}, receive, send))
        return int(answered[0]["status"])

    part: Message = {"type": "http.request", "body": b"{", "more_body": True}
    assert status_of(part, {"type": "http.disconnect"}) == 400
    assert status_of(part, {"type": "http.request", "body": b"}"}) == 401
    monkeypatch.setattr("headrace.sources.webhooks.BODY_SECONDS", 0.05)
    assert status_of() == 408
    assert status_of(part) == 408


def test_webhook_responds_503_during_an_outage_of_kafka(here: Shop) -> None:
    assert here.client.get("/ready").json() == {"status": "ready", "webhooks": dict.fromkeys(PATHS, "on")}
    here.producer.is_unavailable = True
    for answer in (here.post("stripe", EVENT), here.post("hubspot", [CONTACT, CONTACT]), here.client.get("/ready")):
        assert (answer.status_code, answer.headers["retry-after"], answer.json()["status"]) == (503, "1", "error")
    assert here.client.get("/health").status_code == 503
    here.producer.is_unavailable, here.producer.room = False, 1
    assert here.post("hubspot", [CONTACT, CONTACT]).status_code == 503, "a part of a list is not enough"


PATHS = ("/webhooks/shopify", "/webhooks/stripe", "/webhooks/hubspot")


def test_webhook_without_a_secret_is_off() -> None:
    with shop(environ={"STRIPE_WEBHOOK_SECRET": SECRETS["STRIPE_WEBHOOK_SECRET"], "SHOPIFY_WEBHOOK_SECRET": " "}) as here:
        assert here.post("stripe", EVENT).status_code == 200
        for provider in ("shopify", "hubspot"):
            answer = here.post(provider, [ORDER], secret="")
            assert answer.status_code == 503
            assert f"off, because {provider.upper()}_WEBHOOK_SECRET is not set" in answer.json()["message"]
        assert here.client.get("/ready").json()["webhooks"] == dict(zip(PATHS, ("off", "on", "off"), strict=True))


def test_webhook_accepts_two_secrets_during_a_rotation() -> None:
    environ = {**SECRETS, "STRIPE_WEBHOOK_SECRET": "new", "STRIPE_WEBHOOK_SECRET_PREVIOUS": "old\n"}
    with shop(environ=environ) as here:
        assert [here.post("stripe", EVENT, secret=secret).status_code for secret in ("new", "old", "older")] == [200, 200, 401]
    with shop(environ={"STRIPE_WEBHOOK_SECRET_PREVIOUS": "old"}) as here:
        assert here.post("stripe", EVENT, secret="old").status_code == 503, "the previous one alone turns nothing on"


def test_webhook_accepts_older_signatures_from_the_environment() -> None:
    with shop(environ={**SECRETS, "HUBSPOT_WEBHOOK_SECRET_SIGNATURES": "hubspot-v1, hubspot-v2"}) as here:
        schemes: tuple[SignatureScheme, ...] = ("hubspot-v3", "hubspot-v2", "hubspot-v1")
        assert [here.post("hubspot", [CONTACT], scheme=scheme).status_code for scheme in schemes] == [200, 200, 200]
    with (
        pytest.raises(SettingsError, match='unknown signature "v1" of /webhooks/hubspot'),
        shop(environ={**SECRETS, "HUBSPOT_WEBHOOK_SECRET_SIGNATURES": "v1"}),
    ):
        pass


def test_webhook_never_shows_secrets() -> None:
    http = commerce().http
    assert http is not None
    for webhook in http.webhooks:
        assert SECRETS[webhook.secret] not in repr(Lock.of(webhook, SECRETS))


def test_webhook_checks_signatures_with_the_public_url() -> None:
    with shop(limits=Limits(public_url="https://hooks.example/")) as here:
        assert here.post("hubspot", [CONTACT]).status_code == 401
        body = json.dumps([CONTACT]).encode()
        request = SignedRequest("POST", "https://hooks.example/webhooks/hubspot?a=%20", {}, body)
        headers = sign(request, "hubspot-v3", secret=SECRETS["HUBSPOT_WEBHOOK_SECRET"], now=datetime.now(timezone.utc))
        answer = here.client.post("/webhooks/hubspot?a=%20", content=body, headers=headers)
        assert answer.status_code == 200


OWN = {
    **OWN_STREAMS,
    "sources/take.py": """\
from headrace import Delivery, Message, Payload, PayloadError, Received, receive, webhook

@webhook("/hooks", signatures=["standard-webhooks"], secret="MY_SECRET", streams=["things"], other="rest")
def take(payload: Payload, delivery: Delivery) -> Message:
    if payload.text("type") == "boom":
        raise RuntimeError("secret words")
    if payload.text("type") is None:
        raise PayloadError("it has no type")
    return Message("thing", delivery.headers["webhook-id"], "things", payload.fields)

@receive("/count", stream="things")
def count(number: int) -> Received:
    return Received({"number": number}, {"ok": True})
""",
}


def test_webhook_of_a_users_pipeline_accepts_standard_webhooks(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "mine", OWN)
    pipeline = load_pipeline("mine", environ={}, folder=tmp_path)
    secret = "whsec_aGVhZHJhY2U="
    with shop(pipeline, environ={"MY_SECRET": secret}) as here:

        def post(body: str) -> int:
            now = datetime.now(timezone.utc)
            headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp()))}
            signature = Webhook(secret).sign("msg_1", now, body)
            answer = here.client.post("/hooks", content=body, headers={**headers, "webhook-signature": signature})
            return int(answer.status_code)

        assert post('{"type": "t", "number": 9, "about": {"a": [1.0]}}') == 200
        assert [post('{"type": null}'), post('{"type": "boom"}')] == [400, 500]
        assert here.client.get("/count", params={"number": 3}).json() == {"ok": True}
        (_, event), (_, counted) = here.producer.events
        assert (event["number"], event["about"], event["_event_id"]) == (9, '{"a": [1.0]}', "msg_1")
        assert counted == {"number": 3}
    with pytest.raises(SettingsError, match="it is not a base64-encoded key"), shop(pipeline, environ={"MY_SECRET": "whsec_"}):
        pass
