"""Values for the shop's rows, with the odd ones that life has: each is a function of the random numbers that it is given."""

from __future__ import annotations

import uuid
from datetime import date, timedelta
from decimal import Decimal
from random import Random

GIVEN = (
    "Ada",
    "Björn",
    "Chen",
    "Dóra",
    "Émile",
    "Fatima",
    "Goran",
    "Hana",
    "İpek",
    "Jun",
    "Kofi",
    "Łucja",
    "María",
    "Noor",
    "雪",
)
FAMILY = ("Andersson", "Brandt", "Castillo", "Dvořák", "Eriksen", "Fournier", "García", "Hosseini", "O'Neil", "Jensen", "李")
CITIES = (
    ("New York", "10001", "US"),
    ("London", "EC1A 1BB", "GB"),
    ("München", "80331", "DE"),
    ("São Paulo", "01001-000", "BR"),
)
GOODS = ("Kettle", "Mug", "Coffee, 1 kg", "Filter", "Scale", "Grinder", "Tray", "Spoon", "Jar", "Cloth")
WORDS = (
    "quiet",
    "sturdy",
    "light",
    "naïve",
    "blue",
    "größer",
    "hand-made",
    "☕",
    "速い",
    "it's",
    'so-called "pure"',
    "50%",
    "\\n",
    "tab\there",
)
CARRIERS = ("DHL", "UPS", "Post", "by bike")
PROVIDERS = ("card", "paypal", "invoice", "giftcard")
CURRENCIES = ("EUR", "EUR", "EUR", "USD", "GBP")
TIERS = ("basic", "basic", "basic", "silver", "gold", "platinum")
LARGE, LARGEST = 20_000, 1_000_000
"""How many characters a large text has, and the largest: both are kept outside of their row."""


def name(random: Random) -> str:
    return f"{random.choice(GIVEN)} {random.choice(FAMILY)}"


def email(random: Random, number: int) -> str:
    return f"{random.choice(('shop', 'mail', 'post'))}{number}@example.{random.choice(('com', 'org', 'net'))}"


def money(random: Random, *, at_most: int = 500) -> Decimal:
    return Decimal(random.randint(1, at_most * 100)).scaleb(-2)


def precise(random: Random) -> Decimal | None:
    """Return a number with as many digits as it likes, or none."""
    digits = random.choice((0, 1, 4, 12, 20))
    chosen = Decimal(random.randint(-(10 ** (digits + 2)), 10 ** (digits + 2))).scaleb(-digits)
    return random.choice((None, chosen, chosen, chosen, Decimal(0)))


def sentence(random: Random, words: int = 8) -> str:
    return " ".join(random.choice(WORDS) for _ in range(words))


def large_text(random: Random, length: int) -> str:
    """Return a text that can't be made much shorter, so that Postgres keeps it outside of its row."""
    return random.randbytes(length // 2).hex()


def tags(random: Random) -> list[str | None]:
    choices: list[list[str | None]] = [[], ["vip"], ["a,b", 'say "hi"'], ["", "null", None], ["{}", "ünï", "back\\slash"]]
    return random.choice(choices)


def numbers(random: Random) -> list[int | None] | None:
    choices: list[list[int | None] | None] = [None, [], [random.randint(1, 100)], [3, None, -1], [2**31 - 1, -(2**31)]]
    return random.choice(choices)


def document(random: Random) -> dict[str, object]:
    """Return what a JSON column may hold: nesting, nulls, empty things, and numbers beyond a float's precision."""
    details: dict[str, object] = {"note": sentence(random, 2), "on": random.random() < 0.5, "none": None, "é": []}
    details["deep"] = {"list": [1, "two", {"three": 3}], "empty": {}}
    details["large"] = random.randint(2**53, 2**62)
    return details


def day(random: Random, *, until: date, days: int) -> date:
    return until - timedelta(days=random.randint(0, days))


def identifier(random: Random) -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)
