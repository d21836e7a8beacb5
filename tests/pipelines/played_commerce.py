"""Webhooks as the three providers send them, with all that goes wrong, as the messages that the server makes of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any

from headrace.sources.generate import events_of
from headrace.sources.generators import Rate
from headrace.spec.model.pipeline import Stream
from tests.support.webhooks import Shop, commerce, shop

Row = dict[str, Any]
Messages = list[tuple[str, Row]]
"""Streams and messages, in the order in which they came."""

COUNTS = {
    "shopify_orders": 90,
    "shopify_customers": 45,
    "stripe_charges": 90,
    "stripe_customers": 45,
    "hubspot_contacts": 45,
    "hubspot_companies": 8,
}
BY_TOPIC = {stream.topic: stream.name for stream in commerce().streams}
DELETED_ORDERS = (3, 12)
WORTHLESS_ORDER = 5
LATER = "2026-01-02T00:00:00+00:00"


def stream_named(name: str) -> Stream:
    return next(stream for stream in commerce().streams if stream.name == name)


def played(seed: int = 4) -> Messages:
    """Return what lands of generated webhooks: some in yen and dinars, some refunded in part, some orders deleted."""
    with shop() as here:
        for name, count in COUNTS.items():
            rate = Rate(seed=seed, problems={"bad_time": 0.0})
            for delivery in islice(events_of(stream_named(name), rate), count):
                body, headers = _changed(name, copy.deepcopy(delivery["body"])), delivery["headers"]
                assert isinstance(headers, dict)
                send(here, name, body, **headers)
        for number in DELETED_ORDERS:
            send(here, "shopify_orders", {"id": 5_000_000_000_000 + number}, **_shopify("orders/delete", f"deletion {number}"))
        return taken(here)


def send(here: Shop, name: str, body: object, **headers: str) -> None:
    """Send one webhook to the endpoint of a stream."""
    through = stream_named(name).through
    assert through is not None
    given: dict[str, Any] = {key.replace("-", "_"): value for key, value in headers.items()}
    assert here.post(through.rsplit("/", 1)[1], body, **given).status_code == 200


def taken(here: Shop) -> Messages:
    return [(BY_TOPIC[topic], event) for topic, event in here.producer.events]


def change_phone(customer_id: str, *, email: str | None, phone: str) -> Messages:
    """Return the message of a customer of the shop who is given a phone, after all others."""
    with shop() as here:
        body: Row = {"id": int(customer_id), "email": email, "phone": phone, "created_at": LATER, "updated_at": LATER}
        body["default_address"] = {"country_code": "US"}
        send(here, "shopify_customers", body, **_shopify("customers/update", "a phone"))
        return taken(here)


def in_two(messages: Messages, *, seed: int = 1) -> tuple[Messages, Messages]:
    """Return messages in any order, in two parts; every fifth of the first comes once more in the second."""
    random = Random(seed)
    mixed = [*messages]
    random.shuffle(mixed)
    half = len(mixed) // 2
    return mixed[:half], [*mixed[half:], *random.sample(mixed[:half], half // 5)]


def by_stream(messages: Sequence[tuple[str, Row]]) -> dict[str, list[Row]]:
    rows_by_stream: dict[str, list[Row]] = {}
    for name, message in messages:
        rows_by_stream.setdefault(name, []).append(message)
    return rows_by_stream


def _shopify(topic: str, identity: str) -> dict[str, str]:
    return {"x-shopify-topic": topic, "x-shopify-webhook-id": identity}


def _changed(name: str, body: Any) -> Any:
    """Return a body in another currency, or with a part refunded, as its order's number says; each time the same."""
    if name == "shopify_orders":
        if body["id"] % 7 == 0:
            yen = {field: body[field].replace(".", "") for field in ("total_price", "subtotal_price", "total_tax")}
            body |= {"currency": "jpy", **yen}
        if body["id"] % 1_000_000 == WORTHLESS_ORDER:
            body["total_price"] = "N/A"
    if name == "stripe_charges":
        charge = body["data"]["object"]
        number = int(charge["metadata"]["order_id"])
        charge["currency"] = "jpy" if number % 7 == 0 else "kwd" if number % 11 == 0 else charge["currency"]
        if number % 2 and charge["amount_refunded"]:
            charge |= {"amount_refunded": charge["amount"] // 3, "refunded": False}
    return body
