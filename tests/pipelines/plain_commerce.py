"""What raw webhooks come to, by plain arithmetic: the newest state of each order and charge, and each person's sums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any

Row = dict[str, Any]
Place = tuple[str, str]
"""A person and a currency."""

FINANCIAL = ("pending", "authorized", "partially_paid", "paid", "partially_refunded", "refunded", "voided")
STATUS = ("pending", "failed", "succeeded")
DECIMALS = {"JPY": 0, "KWD": 3}


@dataclass
class Sums:
    order_count: int = 0
    cancelled_order_count: int = 0
    charge_count: int = 0
    failed_charge_count: int = 0
    refunded_charge_count: int = 0
    ordered_amount: Decimal = Decimal(0)
    cancelled_amount: Decimal = Decimal(0)
    charged_amount: Decimal = Decimal(0)
    refunded_amount: Decimal = Decimal(0)
    failed_amount: Decimal = Decimal(0)
    net_amount: Decimal = Decimal(0)

    def add(self, other: Sums) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def sums_of(row: Mapping[str, Any]) -> Sums:
    """Return the sums that a row of a table, or an entry of `amounts`, says there are."""
    return Sums(**{field.name: row[field.name] for field in fields(Sums)})


def newest_orders(messages: Iterable[Row]) -> dict[str, Row]:
    """Return each order as it stands: the newest state, of several at the same second the one furthest in its life."""
    states: dict[str, list[Row]] = {}
    gone = set()
    for message in messages:
        if message["_webhook_topic"] == "orders/delete":
            gone.add(str(message["id"]))
        elif total_of(message) is not None:
            states.setdefault(str(message["id"]), []).append(message)
    return {identity: max(rows, key=_order_age) for identity, rows in states.items() if identity not in gone}


def newest_charges(messages: Iterable[Row]) -> dict[str, Row]:
    states: dict[str, list[Row]] = {}
    for message in messages:
        states.setdefault(message["id"], []).append(message)
    return {identity: max(rows, key=_charge_age) for identity, rows in states.items()}


def newest_contacts(messages: Iterable[Row]) -> dict[str, dict[str, str | None]]:
    """Return the properties of each contact as its events leave them, one after the other."""
    contacts: dict[str, dict[str, str | None]] = {}
    for message in sorted(
        messages, key=lambda row: (row["occurred_at"], row["_webhook_topic"] != "contact.creation", row["_event_id"])
    ):
        known = contacts.setdefault(str(message["id"]), {})
        given = (
            json.loads(message["properties"])
            if message.get("properties")
            else {message["property_name"]: message["property_value"]}
        )
        known |= {name: value.strip() if value else None for name, value in given.items()}
    return contacts


def record_of_order(order: Row) -> tuple[str, str]:
    customer = json.loads(order["customer"]) if order["customer"] else None
    return "shopify", str(customer["id"]) if customer else f"guest:{order['id']}"


def record_of_charge(charge: Row) -> tuple[str, str]:
    return "stripe", charge["customer"] or f"charge:{charge['id']}"


def total_of(order: Row) -> Decimal | None:
    try:
        return Decimal(order["total_price"])
    except InvalidOperation:
        return None


def order_sums(order: Row) -> Sums:
    total = total_of(order) or Decimal(0)
    if order["cancelled_at"]:
        return Sums(order_count=1, cancelled_order_count=1, cancelled_amount=total)
    return Sums(order_count=1, ordered_amount=total)


def charge_sums(charge: Row) -> Sums:
    def money(field: str) -> Decimal:
        return Decimal(charge[field]).scaleb(-DECIMALS.get(charge["currency"].upper(), 2))

    if charge["status"] == "failed":
        return Sums(charge_count=1, failed_charge_count=1, failed_amount=money("amount"))
    taken, back = money("amount_captured"), money("amount_refunded")
    return Sums(
        charge_count=1,
        refunded_charge_count=int(back > 0),
        charged_amount=taken,
        refunded_amount=back,
        net_amount=taken - back,
    )


def sums_by_person(orders: Iterable[Row], charges: Iterable[Row], people: Mapping[tuple[str, str], str]) -> dict[Place, Sums]:
    """Return what each person comes to in each currency; `people` says whose each record is."""
    sums: dict[Place, Sums] = {}
    for order in newest_orders(orders).values():
        place = people[record_of_order(order)], order["currency"].upper()
        sums.setdefault(place, Sums()).add(order_sums(order))
    for charge in newest_charges(charges).values():
        place = people[record_of_charge(charge)], charge["currency"].upper()
        sums.setdefault(place, Sums()).add(charge_sums(charge))
    return sums


def _order_age(order: Row) -> tuple[object, ...]:
    financial, fulfillment = order["financial_status"], order["fulfillment_status"]
    return order["updated_at"], order["cancelled_at"] is not None, FINANCIAL.index(financial), fulfillment is not None


def _charge_age(charge: Row) -> tuple[object, ...]:
    return charge["event_created"], STATUS.index(charge["status"]), charge["amount_captured"], charge["amount_refunded"]
