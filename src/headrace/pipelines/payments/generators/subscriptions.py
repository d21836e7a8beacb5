"""Subscriptions: each is created, updated any number of times, and canceled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from random import Random

from .problems import COMMON, Event, Problems, disturb, problems_of_any, text_of
from .providers import WORDS
from .world import LANES, LIVES, TURN, World, amount

PROBLEMS = {**COMMON, "null_trial_dates": 0.1, "missing_promo_code": 0.15, "inconsistent_interval": 0.2}
"""Each problem and its rate: how many of the events that can have it do."""

LATEST = LANES - 10
UPDATES = sum(length - 2 for lives in LIVES for length in lives) / (TURN * len(LIVES))
INTERVALS = {"week": timedelta(days=7), "month": timedelta(days=30), "year": timedelta(days=365)}
SPELLINGS = {
    "week": ("weekly", "Week", "7 days"),
    "month": ("monthly", "Month", "MONTH", "1 month", "mo"),
    "year": ("yearly", "annual", "YEAR", "12 months"),
}


def events(
    random: Random, now: Callable[[], datetime], problems: Mapping[str, float] | None = None, start: int = 0
) -> Iterator[Event]:
    """Return events number `start` and up, without end, of subscriptions that each begin, change and end in this order.

    Which subscription an event is of, and its state then, is derived from the event's number (see world.py): only when it
    began is remembered. Late or not, the events of one subscription stay in their order.
    """
    world, drawn = World.of(random), Problems(random, PROBLEMS, problems or {})
    began: dict[str, datetime] = {}
    return disturb(
        lambda number, moment: _make(world, number, moment, drawn, began),
        drawn,
        now=now,
        start=start,
        latest=LATEST,
        replaceable=lambda number: _action(world, number) == "updated",
        share=UPDATES,
    )


def problems_of(event: Event) -> list[str]:
    """Return the names of the problems that the event shows."""
    return [
        *problems_of_any(event),
        *(["null_trial_dates"] if event["trial_days"] and event["trial_start"] is None else []),
        *(["missing_promo_code"] if event["coupon_id"] and event["promo_code"] is None else []),
        *(["inconsistent_interval"] if event["plan_interval"] not in INTERVALS else []),
    ]


def _action(world: World, number: int) -> str:
    subscription, at = world.subscription_step(number)
    return subscription.states[at].action


def _make(world: World, number: int, moment: datetime, problems: Problems, began: dict[str, datetime]) -> Event:
    subscription, at = world.subscription_step(number)
    state = subscription.states[at]
    plan_id, plan_name, interval, cents = state.plan
    beginning = began.setdefault(subscription.id, moment)
    ended = state.action == "canceled"
    if ended:
        del began[subscription.id]
    trial = subscription.trial_days > 0 and not problems.strike("null_trial_dates")
    promo = subscription.promo_code is not None and not problems.strike("missing_promo_code")
    return {
        "event_id": f"evt_{world.random('subscription event', number).getrandbits(96):024x}",
        "event_type": f"subscription.{state.action}",
        "provider": problems.spell(subscription.provider),
        "subscription_id": subscription.id,
        "customer_id": subscription.customer.id,
        "status": WORDS[subscription.provider].subscription[state.standing],
        "plan_id": plan_id,
        "plan_name": plan_name,
        "plan_interval": problems.choose(SPELLINGS[interval]) if problems.strike("inconsistent_interval") else interval,
        "interval_count": 1,
        "quantity": state.quantity,
        "amount": amount(cents * state.quantity),
        "currency": subscription.merchant.currency,
        "trial_days": subscription.trial_days,
        "trial_start": text_of(beginning) if trial else None,
        "trial_end": text_of(beginning + timedelta(days=subscription.trial_days)) if trial else None,
        "current_period_start": text_of(moment),
        "current_period_end": text_of(moment + INTERVALS[interval]),
        "coupon_id": subscription.coupon,
        "promo_code": subscription.promo_code if promo else None,
        "discount_percent": subscription.percent_off,
        "cancel_at_period_end": state.cancel_at_period_end,
        "canceled_at": text_of(moment) if ended else None,
        "cancellation_reason": subscription.cancellation_reason if ended else None,
        "merchant_id": subscription.merchant.id,
        "metadata": {
            "user_email": subscription.customer.email,
            "signup_channel": subscription.channel,
            "previous_plan_id": state.previous_plan_id,
        },
        "created_at": text_of(moment),
        "updated_at": text_of(moment),
    }
