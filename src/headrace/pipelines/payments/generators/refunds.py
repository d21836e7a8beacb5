"""Refunds: all of a charge, or a part of it, goes back to the customer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from random import Random

from .problems import COMMON, Event, Problems, disturb, problems_of_any, text_of
from .providers import REFUND_FAILURES, REFUND_REASONS, WORDS
from .world import World, amount

PROBLEMS = {**COMMON, "null_status": 0.05, "inconsistent_reason": 0.2, "missing_support_ticket": 0.15}
"""Each problem and its rate: how many of the events that can have it do."""

LATEST = 5


def events(
    random: Random, now: Callable[[], datetime], problems: Mapping[str, float] | None = None, start: int = 0
) -> Iterator[Event]:
    """Return refunds number `start` and up, without end, each of a charge of the same world that was sent before.

    Each is of another charge, and has its provider, customer, merchant and currency and at most its amount: the charge is
    derived from the refund's number (see world.py), not remembered.
    """
    world, drawn = World.of(random), Problems(random, PROBLEMS, problems or {})
    return disturb(lambda number, moment: _make(world, number, moment, drawn), drawn, now=now, start=start, latest=LATEST)


def problems_of(event: Event) -> list[str]:
    """Return the names of the problems that the event shows."""
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    return [
        *problems_of_any(event),
        *(["null_status"] if event["status"] is None else []),
        *(["inconsistent_reason"] if event["reason"] not in REFUND_REASONS else []),
        *(["missing_support_ticket"] if metadata["support_ticket_id"] is None else []),
    ]


def _make(world: World, number: int, moment: datetime, problems: Problems) -> Event:
    charge, random = world.charge(world.refunded_charge(number)), world.random("refund", number)
    outcome = random.choices(("succeeded", "pending", "failed"), weights=(85, 10, 5))[0]
    cents = charge.cents if random.random() < 0.7 else random.randint(1, charge.cents)
    reason = random.choice(REFUND_REASONS)
    return {
        "event_id": f"evt_{random.getrandbits(96):024x}",
        "event_type": f"refund.{outcome}",
        "provider": problems.spell(charge.provider),
        "refund_id": f"re_{random.getrandbits(96):024x}",
        "charge_id": charge.id,
        "customer_id": charge.customer.id,
        "amount": amount(cents),
        "currency": charge.currency,
        "status": None if problems.strike("null_status") else WORDS[charge.provider].refund[outcome],
        "reason": problems.choose(_spellings(reason)) if problems.strike("inconsistent_reason") else reason,
        "failure_reason": random.choice(REFUND_FAILURES) if outcome == "failed" else None,
        "merchant_id": charge.merchant.id,
        "metadata": {
            "refund_requested_by": random.choice(("customer", "customer", "merchant", "support", "system")),
            "original_order_id": charge.order_id,
            "support_ticket_id": None if problems.strike("missing_support_ticket") else f"tick_{number:06d}",
        },
        "created_at": text_of(moment),
        "updated_at": text_of(moment + timedelta(milliseconds=random.randrange(250))),
    }


def _spellings(reason: str) -> tuple[str, ...]:
    """Return the ways in which people and programs write the reason, other than the right one."""
    words = reason.replace("_", " ")
    return (reason.upper(), words.capitalize(), words.title().replace(" ", ""), f"{words.replace(' ', '-')}.", f" {words} ")
