"""Fills an empty shop: customers, what they can buy, and what they have bought. The same numbers give the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from itertools import islice
from random import Random

from psycopg import Connection, sql

from . import rows
from .rows import Row

TABLES = (
    "customers",
    "addresses",
    "categories",
    "products",
    "promotions",
    "orders",
    "order_items",
    "payments",
    "shipments",
    "reviews",
)
NUMBERED = ("customers", "addresses", "products", "orders", "shipments", "reviews")
_ORDERS_AT_ONCE = 1_000


def is_filled(connection: Connection) -> bool:
    return connection.execute("SELECT EXISTS (SELECT FROM customers) OR EXISTS (SELECT FROM products)").fetchone() == (True,)


def empty(connection: Connection) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, TABLES))
    connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(names))


def fill(connection: Connection, random: Random, *, until: date, customers: int, products: int, orders: int) -> None:
    """Copy rows into empty tables, some thousand at a time; the newest is of the day before `until`."""
    end = datetime.combine(until, time(), timezone.utc)
    copy(connection, "customers", rows.CUSTOMER, (rows.customer(random, number, end) for number in range(1, customers + 1)))
    copy(connection, "addresses", rows.ADDRESS, (rows.address(random, number) for number in range(1, customers + 1)))
    copy(connection, "categories", rows.CATEGORY, rows.categories())
    copy(connection, "products", rows.PRODUCT, (rows.product(random, number, end) for number in range(1, products + 1)))
    copy(connection, "promotions", rows.PROMOTION, rows.promotions(random, until))
    if customers and products:
        fill_orders(connection, random, end, customers=customers, products=products, orders=orders)
        copied = (rows.review(random, number, end, customers, products) for number in range(1, orders // 5 + 1))
        copy(connection, "reviews", rows.REVIEW, copied)
    for table in NUMBERED:
        connection.execute(
            sql.SQL(
                "SELECT setval(pg_get_serial_sequence({}, 'id'), coalesce(max(id), 1), max(id) IS NOT NULL) FROM {}"
            ).format(sql.Literal(table), sql.Identifier(table))
        )


def fill_orders(connection: Connection, random: Random, end: datetime, *, customers: int, products: int, orders: int) -> None:
    prices: dict[int, Decimal] = dict(connection.execute("SELECT id, price FROM products WHERE id <= 10000").fetchall())
    numbers = iter(range(1, orders + 1))
    while chunk := list(islice(numbers, _ORDERS_AT_ONCE)):
        orders_of_chunk = [rows.whole_order(random, number, end, customers, products, prices) for number in chunk]
        copy(connection, "orders", rows.ORDER, (order for order, _, _, _ in orders_of_chunk))
        copy(connection, "order_items", rows.ITEM, (item for _, items, _, _ in orders_of_chunk for item in items))
        copy(connection, "payments", rows.PAYMENT, (payment for _, _, paid, _ in orders_of_chunk for payment in paid))
        copy(connection, "shipments", rows.SHIPMENT, (shipment for _, _, _, sent in orders_of_chunk for shipment in sent))


def copy(connection: Connection, table: str, columns: Iterable[str], rows: Iterable[Row]) -> int:
    """Return how many rows were copied into a table."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    count = 0
    with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)) as stream:
        for row in rows:
            stream.write_row(row)
            count += 1
    return count
