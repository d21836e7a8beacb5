"""Charges: attempts to take money from a customer, most of which succeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from random import Random

from .problems import COMMON, Event, Problems, disturb, problems_of_any, text_of
from .providers import WORDS
from .world import CHARGES_PER_DISPUTE, CHARGES_PER_REFUND, COUNTRIES, CURRENCIES, World, amount

PROBLEMS = {
    **COMMON,
    "null_text": 0.08,
    "empty_text": 0.04,
    "invalid_country": 0.03,
    "missing_postal_code": 0.05,
    "mixed_case_currency": 0.15,
}
"""Each problem and its rate: how many of the events that can have it do."""

LATEST = 40
NOT_REFERRED_TO = (1 - 1 / CHARGES_PER_REFUND) * (1 - 1 / CHARGES_PER_DISPUTE)
NULLS = ("null", "NULL")
INVALID_COUNTRIES = ("342", "999", "XX", "ZZ", "USA")
OPTIONAL = ("failure_code", "failure_message", "3ds_authenticated", "subscription_id")


def events(
    random: Random, now: Callable[[], datetime], problems: Mapping[str, float] | None = None, start: int = 0
) -> Iterator[Event]:
    """Return charges number `start` and up, without end; `random` fixes them, but for the times, which are `now`'s."""
    world, drawn = World.of(random), Problems(random, PROBLEMS, problems or {})
    return disturb(
        lambda number, moment: _make(world, number, moment, drawn),
        drawn,
        now=now,
        start=start,
        latest=LATEST,
        replaceable=lambda number: not world.is_referred_to(number),
        share=NOT_REFERRED_TO,
    )


def problems_of(event: Event) -> list[str]:
    """Return the names of the problems that the event shows."""
    optional = [_holder(event, field).get(field) for field in OPTIONAL]
    country = event["card_country"]
    return [
        *problems_of_any(event),
        *(["null_text"] if any(value in NULLS for value in optional) else []),
        *(["empty_text"] if "" in optional else []),
        *(["invalid_country"] if event["billing_country"] not in COUNTRIES or country not in (*COUNTRIES, None) else []),
        *(["missing_postal_code"] if event["billing_postal_code"] is None else []),
        *(["mixed_case_currency"] if event["currency"] not in CURRENCIES else []),
    ]


def _make(world: World, number: int, moment: datetime, problems: Problems) -> Event:
    charge = world.charge(number)
    customer, merchant, words = charge.customer, charge.merchant, WORDS[charge.provider]
    statuses = words.charge[charge.outcome]
    code, message = words.failures[charge.failure % len(words.failures)] if charge.outcome == "failed" else (None, None)
    event: Event = {
        "event_id": charge.event_id,
        "event_type": f"charge.{charge.outcome}",
        "provider": problems.spell(charge.provider),
        "charge_id": charge.id,
        "customer_id": customer.id,
        "amount": amount(charge.cents),
        "currency": charge.currency,
        "status": statuses[charge.failure % len(statuses)],
        "failure_code": code,
        "failure_message": message,
        "payment_method_id": customer.method_id,
        "payment_method_type": customer.method_type,
        "card_brand": customer.card_brand,
        "card_last4": customer.card_last4,
        "card_exp_month": customer.card_exp_month,
        "card_exp_year": customer.card_exp_year,
        "card_country": customer.card_country,
        "billing_country": customer.country,
        "billing_postal_code": customer.postal_code,
        "merchant_id": merchant.id,
        "merchant_name": merchant.name,
        "description": f"{'Renewal' if charge.subscription_id else 'Order'} {charge.order_id} at {merchant.name}",
        "metadata": {
            "order_id": charge.order_id,
            "user_email": customer.email,
            "subscription_id": charge.subscription_id,
        },
        "risk_score": charge.risk_score,
        "risk_level": "low" if charge.risk_score < 40 else "medium" if charge.risk_score < 75 else "high",
        "3ds_authenticated": charge.authenticated,
        "created_at": text_of(moment),
        "updated_at": text_of(moment + timedelta(milliseconds=charge.failure % 250)),
    }
    _spoil(event, problems)
    return event


def _spoil(event: Event, problems: Problems) -> None:
    for name, spellings in (("null_text", NULLS), ("empty_text", ("",))):
        nothing = tuple(field for field in OPTIONAL if _holder(event, field)[field] is None)
        if nothing and problems.strike(name):
            field = problems.choose(nothing)
            _holder(event, field)[field] = problems.choose(spellings)
    if problems.strike("invalid_country"):
        fields = ("billing_country", "card_country") if event["card_country"] else ("billing_country",)
        event[problems.choose(fields)] = problems.choose(INVALID_COUNTRIES)
    if problems.strike("missing_postal_code"):
        event["billing_postal_code"] = None
    if problems.strike("mixed_case_currency"):
        currency = str(event["currency"])
        event["currency"] = problems.choose((currency.lower(), currency.capitalize()))


def _holder(event: Event, field: str) -> Event:
    """Return the part of the event that has the field."""
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    return metadata if field in metadata else event
