"""The world that all four generators tell of: customers, merchants, charges and subscriptions, each a function of its number.

Generators run apart from one another, in threads or in processes, and still agree: they share nothing but the seed. Charge `n`
is always the same charge, whoever asks, so a refund knows the charge that it refunds without having seen it.

Why what is referred to exists: numbers go up from 0, and event `n` of the topic of charges is charge `n`.
- Refund `k` is of one of the charges 3k to 3k + 2, and four charges are sent for each refund: it came before.
- Dispute `d` is of one of the charges 8d to 8d + 7, and ten charges are sent for each event of a dispute: it came before.
- Charge `n` may be of a subscription that runs after event n / 8 - 1 of theirs, and six charges are sent for each of those.
- A charge that a refund or a dispute is of never fails, and its event is never replaced by a duplicate (`is_referred_to`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple

Outcome = Literal["succeeded", "pending", "failed"]
Action = Literal["created", "updated", "canceled"]
Standing = Literal["trialing", "active", "past_due", "canceled"]

PROVIDERS = ("stripe", "stripe", "braintree", "adyen")
CURRENCIES = ("USD", "USD", "EUR", "GBP", "CAD", "AUD", "CHF", "SEK")
COUNTRIES = ("US", "US", "US", "GB", "DE", "FR", "CA", "AU", "CH", "SE", "NL", "ES", "JP", "BR")
BRANDS = ("visa", "visa", "mastercard", "mastercard", "amex", "discover")
METHODS = ("card", "card", "card", "card", "card", "card", "card", "apple_pay", "google_pay", "sepa_debit")
SHOPS = ("Harbour", "Old Town", "Northern", "Garden", "Juniper", "Lantern", "Copper", "Meadow")
GOODS = ("Books", "Coffee", "Cycles", "Audio", "Outdoors")
NAMES = ("ada", "ben", "chen", "dora", "emil", "fatima", "goran", "hana", "ivan", "jun", "kofi", "lena")
PLANS = (
    ("starter_monthly", "Starter", "month", 900),
    ("team_monthly", "Team", "month", 2900),
    ("studio_monthly", "Studio", "month", 4950),
    ("team_yearly", "Team", "year", 29000),
    ("studio_yearly", "Studio", "year", 49500),
    ("digest_weekly", "Digest", "week", 350),
)

CUSTOMERS, MERCHANTS = 2_000, 40
CHARGES_PER_REFUND, CHARGES_PER_DISPUTE, CHARGES_PER_SUBSCRIPTION_EVENT = 3, 8, 8
DISPUTES_AT_ONCE, DISPUTE_STEPS = 5, 3
LANES = 30
"""Subscriptions that live at the same time. Each has a lane, in which the next is created after it is canceled."""
LIVES = ((6,), (3, 3), (4, 2), (2, 4), (2, 2, 2))
"""How six events of a lane can be shared out among subscriptions, each of which has at least its beginning and its end."""
TURN = 6


class Customer(NamedTuple):
    id: str
    email: str
    country: str
    postal_code: str
    method_id: str
    method_type: str
    card_brand: str | None
    card_last4: str | None
    card_exp_month: int | None
    card_exp_year: int | None
    card_country: str | None


class Merchant(NamedTuple):
    id: str
    name: str
    currency: str
    providers: tuple[str, ...]


@dataclass(frozen=True)
class Charge:
    """What is true of a charge, before anything about it is written badly."""

    number: int
    id: str
    event_id: str
    provider: str
    customer: Customer
    merchant: Merchant
    cents: int
    currency: str
    outcome: Outcome
    failure: int
    order_id: str
    subscription_id: str | None
    risk_score: int
    authenticated: str | None


class State(NamedTuple):
    """A subscription after one of its events."""

    action: Action
    standing: Standing
    plan: tuple[str, str, str, int]
    previous_plan_id: str | None
    quantity: int
    cancel_at_period_end: bool


@dataclass(frozen=True)
class Subscription:
    id: str
    provider: str
    customer: Customer
    merchant: Merchant
    trial_days: int
    coupon: str | None
    percent_off: int
    promo_code: str | None
    channel: str
    cancellation_reason: str
    states: tuple[State, ...]


def amount(cents: int) -> Decimal:
    """Return the money with exactly two decimals; it never passes through floating point."""
    return Decimal(cents).scaleb(-2)


@dataclass(frozen=True)
class World:
    """All that a seed makes."""

    seed: int

    @classmethod
    def of(cls, random: Random) -> World:
        """Return the world of a generator that was just started: the same for all that were given the same seed."""
        return cls(random.getrandbits(64))

    def random(self, kind: str, number: object) -> Random:
        return Random(f"{self.seed}/{kind}/{number}")

    def pick(self, kind: str, number: object, *, of: int) -> int:
        """Return a number below `of`; a `Random` of its own would cost ten times as much."""
        return zlib.crc32(f"{self.seed}/{kind}/{number}".encode()) % of

    def customer(self, number: int) -> Customer:
        return _customer(self, number)

    def merchant(self, number: int) -> Merchant:
        return _merchant(self, number)

    def charge(self, number: int) -> Charge:
        random = self.random("charge", number)
        customer, merchant = self.customer(random.randrange(CUSTOMERS)), self.merchant(random.randrange(MERCHANTS))
        provider = random.choice(merchant.providers)
        cents, currency, subscription_id = min(100 + int(random.expovariate(1 / 4500)), 999_999), merchant.currency, None
        held = self._running(number, random) if random.random() < 0.4 else None
        if held:
            subscription, state = held
            customer, merchant, provider = subscription.customer, subscription.merchant, subscription.provider
            cents, currency, subscription_id = state.plan[3] * state.quantity, merchant.currency, subscription.id
        risk_score = min(100, int(random.expovariate(1 / 25)))
        outcome: Outcome = "succeeded"
        if not self.is_referred_to(number) and random.random() < 0.12 + risk_score / 500:
            outcome = "pending" if random.random() < 0.2 else "failed"
        return Charge(
            number=number,
            id=f"ch_{random.getrandbits(96):024x}",
            event_id=f"evt_{random.getrandbits(96):024x}",
            provider=provider,
            customer=customer,
            merchant=merchant,
            cents=cents,
            currency=currency,
            outcome=outcome,
            failure=random.randrange(1_000),
            order_id=f"ord_{number:08d}",
            subscription_id=subscription_id,
            risk_score=risk_score,
            authenticated=random.choice(("true", "true", "false", None, None)) if customer.card_brand else None,
        )

    def refunded_charge(self, refund: int) -> int:
        """Return the number of the charge that a refund is of; no charge is refunded twice."""
        return CHARGES_PER_REFUND * refund + self.pick("refund", refund, of=CHARGES_PER_REFUND)

    def disputed_charge(self, dispute: int) -> int:
        """Return the number of the charge that a dispute is of; no charge is disputed twice."""
        return CHARGES_PER_DISPUTE * dispute + self.pick("dispute", dispute, of=CHARGES_PER_DISPUTE)

    def is_referred_to(self, charge: int) -> bool:
        """Return whether a refund or a dispute is of this charge, which then is sent and succeeds."""
        refund, dispute = charge // CHARGES_PER_REFUND, charge // CHARGES_PER_DISPUTE
        return charge in (self.refunded_charge(refund), self.disputed_charge(dispute))

    def dispute_step(self, number: int) -> tuple[int, int]:
        """Return the dispute, and which of its steps, that event `number` tells of; five disputes go on at once."""
        turn, lane = divmod(number, DISPUTES_AT_ONCE)
        return turn // DISPUTE_STEPS * DISPUTES_AT_ONCE + lane, turn % DISPUTE_STEPS

    def subscription_step(self, number: int) -> tuple[Subscription, int]:
        """Return the subscription, and which of its states, that event `number` tells of."""
        turn, lane = divmod(number, LANES)
        turn, at = divmod(turn, TURN)
        life, lives = 0, LIVES[self.pick("lives", f"{turn}/{lane}", of=len(LIVES))]
        while at >= lives[life]:
            at -= lives[life]
            life += 1
        return _subscription(self, f"{turn}/{lane}/{life}", lives[life]), at

    def _running(self, charge: int, random: Random) -> tuple[Subscription, State] | None:
        """Return a subscription that is running when the charge is made, and its state then."""
        number = charge // CHARGES_PER_SUBSCRIPTION_EVENT - 1 - random.randrange(LANES)
        if number < 0:
            return None
        subscription, at = self.subscription_step(number)
        state = subscription.states[at]
        return None if state.action == "canceled" else (subscription, state)


@lru_cache(maxsize=CUSTOMERS * 2)
def _customer(world: World, number: int) -> Customer:
    random = world.random("customer", number)
    country = random.choice(COUNTRIES)
    method = random.choice(METHODS)
    card = method != "sepa_debit"
    return Customer(
        id=f"cus_{random.getrandbits(56):014x}",
        email=f"{random.choice(NAMES)}.{number}@example.com",
        country=country,
        postal_code=f"{random.randrange(100_000):05d}",
        method_id=f"pm_{random.getrandbits(96):024x}",
        method_type=method,
        card_brand=random.choice(BRANDS) if card else None,
        card_last4=f"{random.randrange(10_000):04d}" if card else None,
        card_exp_month=random.randint(1, 12) if card else None,
        card_exp_year=random.randint(2026, 2033) if card else None,
        card_country=(country if random.random() < 0.9 else random.choice(COUNTRIES)) if card else None,
    )


@lru_cache(maxsize=MERCHANTS * 2)
def _merchant(world: World, number: int) -> Merchant:
    random = world.random("merchant", number)
    return Merchant(
        id=f"merch_{random.getrandbits(48):012x}",
        name=f"{random.choice(SHOPS)} {random.choice(GOODS)} {number}",
        currency=random.choice(CURRENCIES),
        providers=tuple(random.choice(PROVIDERS) for _ in range(2)),
    )


@lru_cache(maxsize=LANES * 8)
def _subscription(world: World, key: str, length: int) -> Subscription:
    random = world.random("subscription", key)
    merchant = world.merchant(random.randrange(MERCHANTS))
    coupon = random.random() < 0.4
    percent_off = random.choice((10, 15, 25, 50))
    trial_days = random.choice((0, 0, 7, 14, 30))
    return Subscription(
        id=f"sub_{random.getrandbits(80):020x}",
        provider=random.choice(merchant.providers),
        customer=world.customer(random.randrange(CUSTOMERS)),
        merchant=merchant,
        trial_days=trial_days,
        coupon=f"coupon_{percent_off}_off" if coupon else None,
        percent_off=percent_off if coupon else 0,
        promo_code=f"{random.choice(SHOPS).replace(' ', '').upper()}{percent_off}" if coupon else None,
        channel=random.choice(("web", "web", "ios", "android", "sales")),
        cancellation_reason=random.choice(("too_expensive", "unused", "switched_service", "payment_failed", "other")),
        states=tuple(_states(random, length, trial=trial_days > 0)),
    )


def _states(random: Random, length: int, *, trial: bool) -> list[State]:
    states = [
        State("created", "trialing" if trial else "active", random.choice(PLANS), None, random.choice((1, 1, 1, 5)), False)
    ]
    for _ in range(length - 2):
        last = states[-1]._replace(action="updated", previous_plan_id=None)
        change = random.random()
        if change < 0.4:
            plan = random.choice([plan for plan in PLANS if plan != last.plan])
            states.append(last._replace(standing="active", plan=plan, previous_plan_id=last.plan[0]))
        elif change < 0.6:
            states.append(last._replace(standing="past_due"))
        elif change < 0.8:
            states.append(last._replace(standing="active", quantity=last.quantity + 1))
        else:
            states.append(last._replace(standing="active", cancel_at_period_end=not last.cancel_at_period_end))
    return [*states, states[-1]._replace(action="canceled", standing="canceled", previous_plan_id=None)]
