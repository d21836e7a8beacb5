"""What Stripe sends: events around charges and customers."""

from __future__ import annotations

from datetime import datetime

from .playing import Memory
from .world import ORDER_SLOTS, PEOPLE_SLOTS, Json, Order, Person, World, created, stripe_person


def charge_delivery(world: World, number: int, moment: datetime, memory: Memory) -> Json:
    """Return delivery `number` of charges: order `number` is paid, or what was paid before changes."""
    slot = number % 5
    if slot in ORDER_SLOTS:
        order = world.order(number)
        what = "succeeded" if order.is_paid else "failed"
    else:
        order = world.order(number - 1 if slot == 1 else number - 2)
        what = "refunded" if order.is_paid and world.pick("refund", number, of=3) == 0 else "updated"
    return _event(world, f"charge.{what}", number, _charge(world, order, what, memory.born(order.number, moment)), moment)


def customer_delivery(world: World, number: int, moment: datetime, memory: Memory) -> Json:
    """Return delivery `number` of customers: a new one, or one of those before."""
    if number % 4 in PEOPLE_SLOTS:
        index, what = created(number), "created"
    else:
        index, what = world.pick("stripe changed", number, of=max(1, created(number))), "updated"
    body = _customer(world, world.person(stripe_person(index)), memory.born(index, moment), is_late=what == "updated")
    return _event(world, f"customer.{what}", number, body, moment)


def again(delivery: Json) -> Json:
    """Return what Stripe sends when it got no answer: the same, with a new signature."""
    return delivery


def _event(world: World, kind: str, number: int, about: Json, moment: datetime) -> Json:
    key = f"{kind.partition('.')[0]}/{number}"
    return {
        "headers": {"user-agent": "Stripe/1.0"},
        "body": {
            "id": f"evt_{world.random('event', key).getrandbits(96):024x}",
            "object": "event",
            "api_version": "2026-01-28",
            "created": int(moment.timestamp()),
            "data": {"object": about},
            "livemode": False,
            "pending_webhooks": 1,
            "type": kind,
        },
    }


def _charge(world: World, order: Order, what: str, born: datetime) -> Json:
    buyer, failed = order.buyer, not order.is_paid
    is_known = not order.is_guest and is_customer(buyer)
    identity = world.random("charge", order.number)
    return {
        "id": f"ch_{identity.getrandbits(96):024x}",
        "object": "charge",
        "amount": order.total,
        "amount_captured": 0 if failed else order.total,
        "amount_refunded": order.total if what == "refunded" else 0,
        "billing_details": {
            "email": world.spell_email(buyer, by="card"),
            "name": f"{buyer.given} {buyer.family}",
            "phone": world.spell_phone(buyer, by="card"),
            "address": {"country": buyer.place[2], "postal_code": buyer.place[3]},
        },
        "captured": not failed,
        "created": int(born.timestamp()),
        "currency": order.currency.lower(),
        "customer": customer_id(world, buyer) if is_known else None,
        "description": None,
        "disputed": False,
        "failure_code": "card_declined" if failed else None,
        "failure_message": "Your card was declined." if failed else None,
        "metadata": {"order_id": str(order.id)},
        "paid": not failed,
        "payment_intent": f"pi_{identity.getrandbits(96):024x}",
        "payment_method": f"pm_{identity.getrandbits(96):024x}",
        "payment_method_details": {"type": "card", "card": {"brand": "visa", "last4": f"{identity.randrange(10_000):04d}"}},
        "receipt_email": world.spell_email(buyer, by="receipt"),
        "refunded": what == "refunded",
        "status": "failed" if failed else "succeeded",
    }


def is_customer(person: Person) -> bool:
    """Return whether Stripe has this person as a customer: not every fifth."""
    return person.number % 5 != 4


def customer_id(world: World, person: Person) -> str:
    return f"cus_{world.random('stripe customer', person.number).getrandbits(56):014x}"


def _customer(world: World, person: Person, born: datetime, *, is_late: bool) -> Json:
    city, state, country, postal_code = person.place
    return {
        "id": customer_id(world, person),
        "object": "customer",
        "address": {"city": city, "state": state, "country": country, "postal_code": postal_code},
        "balance": -world.pick("balance", person.number, of=500) if is_late else 0,
        "created": int(born.timestamp()),
        "currency": "usd",
        "delinquent": is_late and world.pick("delinquent", person.number, of=10) == 0,
        "description": None,
        "email": world.spell_email(person, by="stripe"),
        "livemode": False,
        "metadata": {},
        "name": f"{person.given} {person.family}",
        "phone": world.spell_phone(person, by="stripe"),
        "shipping": None,
    }
