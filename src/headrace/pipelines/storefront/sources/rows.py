"""Rows of the shop's tables as tuples, and the columns that they fill; random numbers and times are given."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from psycopg.types.json import Jsonb

from . import values

STATUSES = ("pending", "paid", "packed", "shipped", "delivered", "delivered", "delivered", "cancelled", "returned")
CATEGORIES = ("Kitchen", "Coffee", "Tea", "Machines", "Gifts", "Parts")
_DAYS = 120

Row = tuple[Any, ...]

CUSTOMER = [
    "id",
    "public_id",
    "email",
    "full_name",
    "tier",
    "is_subscribed",
    "born_on",
    "loyalty_points",
    "tags",
    "preferences",
    "created_at",
    "updated_at",
]


def customer(random: Random, number: int, end: datetime) -> Row:
    created_at = moment(random, end)
    born = values.day(random, until=date(2006, 1, 1), days=25_000) if random.random() < 0.8 else None
    return (
        number,
        values.identifier(random),
        values.email(random, number),
        values.name(random),
        random.choice(values.TIERS),
        random.random() < 0.4,
        born,
        random.randint(0, 5_000),
        values.tags(random),
        Jsonb(values.document(random)),
        created_at,
        created_at,
    )


ADDRESS = ["id", "customer_id", "label", "street", "city", "postcode", "country", "latitude", "longitude", "is_default"]


def address(random: Random, number: int) -> Row:
    city, postcode, country = random.choice(values.CITIES)
    street = f"{random.choice(values.WORDS)} street {random.randint(1, 200)}"
    where = (random.uniform(-90, 90), random.uniform(-180, 180)) if random.random() < 0.7 else (None, None)
    return (number, number, random.choice(("home", "work")), street, city, postcode, country, *where, True)


CATEGORY = ["id", "parent_id", "name", "path"]


def categories() -> Iterator[Row]:
    for number, name in enumerate(CATEGORIES, start=1):
        parent = number // 2 or None
        yield number, parent, name, [*([parent] if parent else []), number]


PRODUCT = [
    "id",
    "sku",
    "category_id",
    "name",
    "description",
    "price",
    "tax_rate",
    "stock",
    "weight_kg",
    "attributes",
    "related_ids",
    "thumbnail",
    "is_active",
    "released_on",
    "created_at",
    "updated_at",
]


def product(random: Random, number: int, end: datetime) -> Row:
    created_at = moment(random, end)
    length = values.LARGEST if number == 1 else values.LARGE if number % 10 == 0 else 0
    return (
        number,
        f"SKU-{number:06d}",
        random.randint(1, len(CATEGORIES)),
        f"{random.choice(values.GOODS)} no. {number}",
        values.large_text(random, length) if length else values.sentence(random, 12),
        values.money(random),
        random.choice((Decimal("0.19"), Decimal("0.07"), Decimal("0.08875"), Decimal(0))),
        random.randint(0, 1_000),
        random.choice((None, random.uniform(0.01, 20))),
        Jsonb(values.document(random)),
        values.numbers(random),
        random.randbytes(random.randint(0, 200)),
        random.random() < 0.95,
        values.day(random, until=end.date(), days=1_000),
        created_at,
        created_at,
    )


PROMOTION = ["code", "percent_off", "category_ids", "is_public", "starts_on", "ends_on"]


def promotions(random: Random, until: date) -> Iterator[Row]:
    for number in range(1, 11):
        begins = values.day(random, until=until, days=60)
        ends = random.choice((None, begins + timedelta(days=30)))
        percent = Decimal(random.randint(1, 9_000)).scaleb(-2)
        yield f"SAVE{number:02d}", percent, values.numbers(random), random.choice((True, False, None)), begins, ends


ORDER = ["id", "customer_id", "status", "total", "currency", "promotion_codes", "note", "created_at", "updated_at"]
ITEM = ["order_id", "line", "product_id", "quantity", "unit_price", "discount", "gift_note"]
PAYMENT = ["id", "order_id", "status", "amount", "exchange_rate", "provider", "details", "signature", "created_at"]
SHIPMENT = [
    "id",
    "order_id",
    "carrier",
    "tracking_code",
    "weight_kg",
    "size_cm",
    "label",
    "expected_on",
    "shipped_at",
    "delivered_at",
]


def whole_order(
    random: Random, number: int, end: datetime, customers: int, products: int, prices: dict[int, Decimal]
) -> tuple[Row, list[Row], list[Row], list[Row]]:
    created_at = moment(random, end)
    status = random.choice(STATUSES)
    items: list[Row] = []
    total = Decimal(0)
    for line in range(1, random.randint(1, 4) + 1):
        bought = random.randint(1, products)
        price, quantity = prices.get(bought, Decimal("9.99")), random.randint(1, 5)
        total += price * quantity
        items.append((number, line, bought, quantity, price, values.precise(random), random.choice((None, "", "For you ♥"))))
    codes = random.choice((None, [], ["SAVE01"], ["SAVE01", "SAVE02"]))
    order = (
        number,
        random.randint(1, customers),
        status,
        total,
        random.choice(values.CURRENCIES),
        codes,
        values.sentence(random, 4) if random.random() < 0.2 else None,
        created_at.replace(tzinfo=None),
        created_at,
    )
    paid = [] if status == "pending" else [payment(random, number, total, "captured", created_at + timedelta(minutes=5))]
    if status == "returned":
        paid.append(payment(random, number, -total, "refunded", created_at + timedelta(days=9)))
    sent = [shipment(random, number, created_at, status)] if status in ("shipped", "delivered", "returned") else []
    return order, items, paid, sent


def payment(random: Random, order: int, amount: Decimal, status: str, at: datetime) -> Row:
    return (
        values.identifier(random),
        order,
        status,
        amount,
        values.precise(random),
        random.choice(values.PROVIDERS),
        random.choice((None, Jsonb(values.document(random)))),
        random.choice((None, b"", random.randbytes(64))),
        at,
    )


def shipment(random: Random, number: int, created_at: datetime, status: str) -> Row:
    sent = created_at + timedelta(days=1, microseconds=random.randint(0, 10**9))
    return (
        number,
        number,
        random.choice(values.CARRIERS),
        f"TR{random.getrandbits(40):013d}" if random.random() < 0.9 else None,
        random.uniform(0.1, 30),
        [random.randint(5, 100) for _ in range(3)],
        random.choice((None, random.randbytes(100))),
        sent.date() + timedelta(days=3),
        sent,
        None if status == "shipped" else (sent + timedelta(days=2)).replace(tzinfo=None),
    )


REVIEW = ["id", "product_id", "customer_id", "rating", "title", "body", "photos", "helpful_votes", "created_at"]


def review(random: Random, number: int, end: datetime, customers: int, products: int) -> Row:
    length = values.LARGEST if number == 1 else values.LARGE if number % 10 == 0 else 0
    return (
        number,
        random.randint(1, products),
        random.randint(1, customers),
        random.randint(1, 5),
        random.choice((None, "", values.sentence(random, 3))),
        values.large_text(random, length) if length else values.sentence(random, 20),
        random.choice((None, [], ["a.jpg", None])),
        random.randint(0, 50),
        moment(random, end),
    )


def moment(random: Random, end: datetime) -> datetime:
    return end - timedelta(microseconds=random.randint(1, _DAYS * 86_400 * 10**6))
