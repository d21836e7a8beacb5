"""Disputes: a customer's bank contests a charge. Each is opened, then defended with evidence, then won or lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from random import Random

from .problems import COMMON, Event, Problems, disturb, problems_of_any, text_of
from .providers import DISPUTE_REASONS, INTERNAL_REASONS, WORDS
from .world import DISPUTE_STEPS, DISPUTES_AT_ONCE, World, amount

PROBLEMS = {**COMMON, "missing_evidence": 0.1, "null_currency": 0.05, "incomplete_case_number": 0.1}
"""Each problem and its rate: how many of the events that can have it do."""

LATEST = DISPUTES_AT_ONCE - 1
CASE_NUMBER = re.compile(r"CB-\d{8}-[0-9A-F]{4}")
STEPS = ("created", "updated", "closed")
Open = dict[int, dict[int, datetime]]
"""When each step of each open dispute was taken."""

DOCUMENTS = ("receipt", "shipping_documentation", "customer_communication", "refund_policy", "service_log")


def events(
    random: Random, now: Callable[[], datetime], problems: Mapping[str, float] | None = None, start: int = 0
) -> Iterator[Event]:
    """Return events number `start` and up, without end, of disputes of charges of the same world that were sent before.

    Each dispute is of another charge, and has its provider, customer, merchant and currency and at most its amount: the
    charge is derived from the dispute's number (see world.py), not remembered. Late or not, its steps stay in their order.
    """
    world, drawn = World.of(random), Problems(random, PROBLEMS, problems or {})
    open_ones: Open = {}
    return disturb(
        lambda number, moment: _make(world, number, moment, drawn, open_ones),
        drawn,
        now=now,
        start=start,
        latest=LATEST,
        replaceable=lambda number: STEPS[world.dispute_step(number)[1]] == "updated",
        share=1 / DISPUTE_STEPS,
    )


def problems_of(event: Event) -> list[str]:
    """Return the names of the problems that the event shows."""
    return [
        *problems_of_any(event),
        *(["missing_evidence"] if event["evidence"] is None else []),
        *(["null_currency"] if event["currency"] is None else []),
        *(["incomplete_case_number"] if not CASE_NUMBER.fullmatch(str(event["case_number"])) else []),
    ]


def _make(world: World, number: int, moment: datetime, problems: Problems, open_ones: Open) -> Event:
    dispute, step = world.dispute_step(number)
    charge, random = world.charge(world.disputed_charge(dispute)), world.random("dispute", dispute)
    dispute_id, case = f"dp_{random.getrandbits(96):024x}", f"CB-{dispute:08d}-{random.getrandbits(16):04X}"
    reason = random.choice(tuple(DISPUTE_REASONS))
    cents = charge.cents if random.random() < 0.9 else random.randint(1, charge.cents)
    taken = open_ones.setdefault(dispute, {})
    taken[step] = moment
    due_by, submitted = min(taken.values()) + timedelta(days=random.randint(7, 20)), taken.get(1)
    documents = random.sample(DOCUMENTS, random.randint(1, 3))
    assigned_to = random.choice(("disputes-eu", "disputes-us", "risk"))
    words = WORDS[charge.provider]
    status = (*words.dispute, random.choice(words.decided))[step]
    if STEPS[step] == "closed":
        del open_ones[dispute]
    network = charge.customer.card_brand or "sepa"
    return {
        "event_id": f"evt_{world.random('dispute event', number).getrandbits(96):024x}",
        "event_type": f"dispute.{STEPS[step]}",
        "provider": problems.spell(charge.provider),
        "dispute_id": dispute_id,
        "charge_id": charge.id,
        "customer_id": charge.customer.id,
        "amount": amount(cents),
        "currency": None if problems.strike("null_currency") else charge.currency,
        "status": status,
        "reason": reason,
        "network": network,
        "network_reason_code": DISPUTE_REASONS[reason][network],
        "internal_reason": INTERNAL_REASONS[reason],
        "case_number": problems.choose(_cut(case)) if problems.strike("incomplete_case_number") else case,
        "evidence": None
        if problems.strike("missing_evidence")
        else {
            "due_by": text_of(due_by),
            "submitted_at": text_of(submitted) if submitted else None,
            "submission_count": 1 if submitted else 0,
            "documents": documents if submitted else [],
        },
        "is_charge_refundable": step == 0,
        "merchant_id": charge.merchant.id,
        "metadata": {"original_order_id": charge.order_id, "assigned_to": assigned_to},
        "created_at": text_of(moment),
        "updated_at": text_of(moment),
    }


def _cut(case: str) -> tuple[str, ...]:
    """Return what is left of a case number when a part of it was lost."""
    return ("CB-", case[:-5], case[:6], case[3:], case[-4:])
