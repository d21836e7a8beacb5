"""What Shopify sends: orders and customers, and what it calls them in its headers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from .playing import Memory
from .world import ORDER_SLOTS, PEOPLE_SLOTS, Json, Order, Person, World, created, money

SHOP = "headrace-coffee.myshopify.com"


def order_delivery(world: World, number: int, moment: datetime, memory: Memory) -> Json:
    """Return delivery `number` of orders: a new one, or one that is paid, fulfilled or cancelled."""
    slot = number % 5
    if slot in ORDER_SLOTS:
        order = world.order(number)
        return _delivery(world, "orders/create", f"order/{number}", _order(world, order, "create", moment, memory))
    order = world.order(number - 1 if slot == 1 else number - 2)
    what = "paid" if slot == 1 else ("fulfilled", "cancelled", "updated")[world.pick("change", number, of=3)]
    return _delivery(world, f"orders/{what}", f"order/{number}", _order(world, order, what, moment, memory))


def customer_delivery(world: World, number: int, moment: datetime, memory: Memory) -> Json:
    """Return delivery `number` of customers: a new one, or one of those before."""
    if number % 4 in PEOPLE_SLOTS:
        index, what = created(number), "create"
    else:
        index, what = world.pick("changed", number, of=max(1, created(number))), "update"
    body = _customer(world, world.person(index), moment, memory.born(index, moment), changes=number if what == "update" else 0)
    return _delivery(world, f"customers/{what}", f"customer/{number}", body)


def again(delivery: Json) -> Json:
    """Return what Shopify sends when it got no answer: the same."""
    return delivery


def _delivery(world: World, topic: str, key: str, body: Json) -> Json:
    identity = UUID(int=world.random("shopify", key).getrandbits(128), version=4)
    return {
        "headers": {
            "x-shopify-topic": topic,
            "x-shopify-webhook-id": str(identity),
            "x-shopify-shop-domain": SHOP,
            "x-shopify-api-version": "2026-01",
        },
        "body": body,
    }


def _order(world: World, order: Order, what: str, moment: datetime, memory: Memory) -> Json:
    born = memory.born(order.number, moment)
    is_paid = order.is_paid and what != "create"
    buyer, email = order.buyer, world.spell_email(order.buyer, by="order")
    return {
        "id": order.id,
        "admin_graphql_api_id": f"gid://shopify/Order/{order.id}",
        "email": email,
        "order_number": 1000 + order.number,
        "total_price": money(order.total),
        "subtotal_price": money(order.subtotal),
        "total_tax": money(order.tax),
        "total_discounts": money(order.discount),
        "total_shipping_price_set": {"shop_money": {"amount": money(order.shipping), "currency_code": order.currency}},
        "currency": order.currency,
        "financial_status": "voided" if what == "cancelled" else "paid" if is_paid else "pending",
        "fulfillment_status": "fulfilled" if what == "fulfilled" else None,
        "customer": None if order.is_guest else {"id": customer_id(buyer), "email": email, **_name(buyer)},
        "line_items": [
            {"id": order.id * 10 + at, "title": title, "quantity": quantity, "price": money(price)}
            for at, (title, price, quantity) in enumerate(order.lines)
        ],
        "shipping_address": _address(buyer),
        "billing_address": _address(buyer),
        "phone": world.spell_phone(buyer, by="order"),
        "created_at": "yesterday" if world.strikes("bad_time", f"order/{order.number}") else _time(born),
        "updated_at": _time(moment),
        "cancelled_at": _time(moment) if what == "cancelled" else None,
        "test": False,
    }


def customer_id(person: Person) -> int:
    return 7_000_000_000_000 + person.number


def _customer(world: World, person: Person, moment: datetime, born: datetime, *, changes: int) -> Json:
    return {
        "id": customer_id(person),
        "admin_graphql_api_id": f"gid://shopify/Customer/{customer_id(person)}",
        "email": world.spell_email(person, by="shop"),
        "phone": world.spell_phone(person, by="shop"),
        **_name(person),
        "state": "enabled" if changes else "disabled",
        "orders_count": world.pick("orders", changes, of=9) if changes else 0,
        "total_spent": money(world.pick("spent", changes, of=50_000)) if changes else "0.00",
        "currency": "USD",
        "verified_email": world.pick("verified", person.number, of=4) > 0,
        "tags": ("", "vip", "wholesale, VIP ", "newsletter")[world.pick("tags", person.number, of=4)],
        "note": None,
        "default_address": _address(person),
        "addresses": [_address(person)],
        "created_at": _time(born),
        "updated_at": _time(moment),
    }


def _name(person: Person) -> Json:
    return {"first_name": person.given, "last_name": person.family}


def _address(person: Person) -> Mapping[str, object]:
    city, province, country, postal_code = person.place
    return {**_name(person), "city": city, "province_code": province, "country_code": country, "zip": postal_code}


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
