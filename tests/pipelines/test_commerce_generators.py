"""The three providers as they are played: the same people in all of them, told again, changed, and written badly."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import islice
from typing import Any

import pytest

from headrace.sources.generate import events_of
from headrace.sources.generators import Rate, load_generator
from headrace.spec.model.pipeline import Stream
from tests.support.webhooks import commerce, shop

PLAYED = [stream for stream in commerce().streams if stream.generator is not None]
NAMES = [stream.name for stream in PLAYED]
CLEAN = Rate(seed=1, problems=dict.fromkeys(load_generator(PLAYED[0]).problems, 0.0))


def stream(name: str) -> Stream:
    return next(played for played in PLAYED if played.name == name)


def deliveries(name: str, count: int, rate: Rate = CLEAN, *, start: int = 0) -> list[dict[str, Any]]:
    return [dict(event) for event in islice(events_of(stream(name), rate, start=start), count)]


def charges_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["body"]["data"]["object"] for event in events]


@pytest.mark.parametrize("name", NAMES)
def test_seed_makes_the_same_webhooks_each_time(name: str) -> None:
    first = deliveries(name, 60, Rate(seed=3))
    assert first == deliveries(name, 60, Rate(seed=3))
    assert first != deliveries(name, 60, Rate(seed=4))


@pytest.mark.parametrize("name", NAMES)
def test_all_are_taken_and_land_in_their_stream(name: str) -> None:
    one = stream(name)
    assert one.through is not None
    with shop() as here:
        for event in deliveries(name, 60, Rate(seed=2)):
            headers = {key.replace("-", "_"): value for key, value in event["headers"].items()}
            assert here.post(one.through.rsplit("/", 1)[1], event["body"], **headers).status_code == 200
        assert {topic for topic, _ in here.producer.events} == {one.topic}
        ids = Counter(event["_event_id"] for _, event in here.producer.events)
        assert sum(ids.values()) - len(ids) >= 3, "every twentieth is sent again"
        kinds = {event["_webhook_topic"].rpartition("/")[2].rpartition(".")[2] for _, event in here.producer.events}
        assert kinds & {"create", "created", "creation", "succeeded"}
        assert kinds - {"create", "created", "creation", "succeeded"}, "some are changed later"


def test_charges_pay_orders_to_the_cent() -> None:
    orders = {event["body"]["id"]: event["body"] for event in deliveries("shopify_orders", 200)}
    charges = charges_of(deliveries("stripe_charges", 200))
    assert len({charge["id"] for charge in charges}) > 100
    for charge in charges:
        order = orders[int(charge["metadata"]["order_id"])]
        assert Decimal(order["total_price"]) * 100 == charge["amount"]
        assert order["currency"].lower() == charge["currency"]
    for order in orders.values():
        shipping = Decimal(order["total_shipping_price_set"]["shop_money"]["amount"])
        lines = sum(Decimal(line["price"]) * line["quantity"] for line in order["line_items"])
        assert Decimal(order["subtotal_price"]) == lines - Decimal(order["total_discounts"])
        assert Decimal(order["total_price"]) == Decimal(order["subtotal_price"]) + Decimal(order["total_tax"]) + shipping


def test_same_people_are_in_all_three_and_not_everybody_is_everywhere() -> None:
    in_shop = {event["body"]["email"] for event in deliveries("shopify_customers", 400)}
    at_stripe = {about["email"] for about in charges_of(deliveries("stripe_customers", 400))}
    events = [part for event in deliveries("hubspot_contacts", 400) for part in event["body"]]
    at_hubspot = {event["properties"]["email"] for event in events if "properties" in event}
    everywhere = in_shop & at_stripe & at_hubspot
    assert len(everywhere) > 50
    assert in_shop - at_stripe - at_hubspot
    assert at_hubspot - in_shop - at_stripe
    buyers = {event["body"]["email"] for event in deliveries("shopify_orders", 200)}
    assert buyers <= in_shop


def test_problems_are_as_many_as_was_asked_for() -> None:
    def customers(**problems: float) -> list[dict[str, Any]]:
        rate = Rate(seed=1, problems={**CLEAN.problems, **problems})
        return [event["body"] for event in deliveries("shopify_customers", 400, rate)]

    plain = customers()
    assert not any(body["email"] is None or body["email"] != body["email"].strip().lower() for body in plain)
    assert all(body["email"] is None for body in customers(no_email=1.0))
    assert all(body["phone"] is None for body in customers(no_phone=1.0))
    odd = customers(odd_email=1.0, odd_phone=1.0)
    assert all(after["email"] != before["email"] for after, before in zip(odd, plain, strict=True))
    assert all(after["phone"] != before["phone"] for after, before in zip(odd, plain, strict=True))
    some = sum(body["email"] is None for body in customers(no_email=0.25))
    assert 60 < some < 140
    bad = [event["body"]["created_at"] for event in deliveries("shopify_orders", 9, Rate(seed=1, problems={"bad_time": 1.0}))]
    assert set(bad) == {"yesterday"}
    shared = Counter(body["phone"] for body in plain)
    assert shared.most_common(1)[0][1] > 5, "the shop's own number is many people's"


@pytest.mark.parametrize("name", ["shopify_orders", "stripe_charges", "hubspot_contacts"])
def test_it_goes_on_where_it_stopped(name: str) -> None:
    whole, later = deliveries(name, 40), deliveries(name, 20, start=20)
    ids = [_ids(event) for event in whole]
    assert [_ids(event) for event in later[:19]] == ids[20:39]


def _ids(event: dict[str, Any]) -> object:
    body = event["body"]
    if isinstance(body, list):
        return [event["eventId"] for event in body]
    return event["headers"].get("x-shopify-webhook-id", body["id"])
