"""What happens in the shop: one transaction at a time, each by a function that says what it does by its name.

They are of all kinds that a reader of changes must get right: rows that are inserted, changed and deleted, several tables in
one transaction, a row changed more than once in one, transactions that are rolled back, large values that change and that
stay, keys that change and that are used again, and a table that is emptied.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from psycopg import Connection, Rollback, sql
from psycopg.types.json import Jsonb

from . import rows, values

Act = Callable[[Connection, Random, datetime], None]

_ADVANCES = {"pending": "paid", "paid": "packed", "packed": "shipped", "shipped": "delivered", "delivered": "returned"}


def pick(connection: Connection, random: Random, table: str) -> int | None:
    """Return the id of some row of a table, by its key's index."""
    name = sql.Identifier(table)
    low, high = connection.execute(sql.SQL("SELECT min(id), max(id) FROM {}").format(name)).fetchone() or (None, None)
    if low is None:
        return None
    inserted = connection.execute(
        sql.SQL("SELECT id FROM {} WHERE id >= %s ORDER BY id LIMIT 1").format(name), [random.randint(low, high)]
    ).fetchone()
    return int(inserted[0]) if inserted else None


def insert(connection: Connection, table: str, columns: list[str], row: rows.Row) -> int:
    """Return the id of a row that is inserted without its own, the first column."""
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns[1:])),
        sql.SQL(", ").join(sql.Placeholder() * (len(columns) - 1)),
    )
    inserted = connection.execute(query, row[1:]).fetchone()
    assert inserted is not None
    return int(inserted[0])


def order(connection: Connection, random: Random, now: datetime) -> None:
    """An order with its items, its payment, and less in stock."""
    customer = pick(connection, random, "customers")
    if customer is None:
        return
    row = (0, customer, "pending", 0, random.choice(values.CURRENCIES), random.choice((None, [], ["SAVE01", None])), None)
    number = insert(connection, "orders", rows.ORDER, (*row, now.replace(tzinfo=None), now))
    total = Decimal(0)
    for line in range(1, random.randint(1, 4) + 1):
        bought = pick(connection, random, "products")
        if bought is None:
            continue
        quantity = random.randint(1, 5)
        product_row = connection.execute(
            "UPDATE products SET stock = stock - %s, updated_at = %s WHERE id = %s RETURNING price", [quantity, now, bought]
        ).fetchone()
        price = product_row[0] if product_row else Decimal(0)
        total += price * quantity
        connection.execute(
            "INSERT INTO order_items (order_id, line, product_id, quantity, unit_price, discount)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [number, line, bought, quantity, price, values.precise(random)],
        )
    connection.execute("UPDATE orders SET total = %s WHERE id = %s", [total, number])
    _pay(connection, rows.payment(random, number, total, "authorized", now))


def abandon(connection: Connection, random: Random, now: datetime) -> None:
    """An order that is rolled back: nothing of it may be seen."""
    order(connection, random, now)
    raise Rollback


def advance(connection: Connection, random: Random, now: datetime) -> None:
    """An order goes a step further, and what belongs to the step."""
    number = pick(connection, random, "orders")
    order = connection.execute("SELECT status, total FROM orders WHERE id = %s FOR UPDATE", [number]).fetchone()
    if order is None or number is None or order[0] not in _ADVANCES:
        return
    status = _ADVANCES[order[0]]
    connection.execute("UPDATE orders SET status = %s, updated_at = %s WHERE id = %s", [status, now, number])
    if status == "paid":
        connection.execute("UPDATE payments SET status = 'captured' WHERE order_id = %s AND status = 'authorized'", [number])
    if status == "shipped":
        insert(connection, "shipments", rows.SHIPMENT, (0, number, *rows.shipment(random, number, now, "shipped")[2:]))
    if status == "delivered":
        delivered = (now + timedelta(microseconds=1)).replace(tzinfo=None)
        connection.execute("UPDATE shipments SET delivered_at = %s WHERE order_id = %s", [delivered, number])
    if status == "returned":
        _pay(connection, rows.payment(random, number, -order[1], "refunded", now))


def cancel(connection: Connection, random: Random, now: datetime) -> None:
    """An order is cancelled: the stock comes back, and so does the money."""
    number = pick(connection, random, "orders")
    order = connection.execute("SELECT total FROM orders WHERE id = %s AND status <> 'cancelled'", [number]).fetchone()
    if order is None or number is None:
        return
    connection.execute("UPDATE orders SET status = 'cancelled', updated_at = %s WHERE id = %s", [now, number])
    connection.execute(
        "UPDATE products SET stock = stock + bought.quantity FROM (SELECT product_id, sum(quantity) AS quantity"
        " FROM order_items WHERE order_id = %s GROUP BY product_id) AS bought"
        " WHERE id = bought.product_id AND bought.quantity < 1000",
        [number],
    )
    _pay(connection, rows.payment(random, number, -order[0], "refunded", now))


def drop_order(connection: Connection, random: Random, now: datetime) -> None:
    """An order is deleted, and all that hangs on it."""
    connection.execute("DELETE FROM orders WHERE id = %s", [pick(connection, random, "orders")])


def renumber(connection: Connection, random: Random, now: datetime) -> None:
    """The lines of an order get other numbers: their keys change."""
    number = pick(connection, random, "orders")
    connection.execute("UPDATE order_items SET line = (line + 10) %% 30000 WHERE order_id = %s", [number])


def join(connection: Connection, random: Random, now: datetime) -> None:
    """A customer and an address."""
    customer = rows.customer(random, 0, now)
    number = insert(connection, "customers", rows.CUSTOMER, (*customer[:-2], now, now))
    insert(connection, "addresses", rows.ADDRESS, (0, number, *rows.address(random, number)[2:]))


def hurry(connection: Connection, random: Random, now: datetime) -> None:
    """A customer who comes, changes and goes in one transaction."""
    number = insert(connection, "customers", rows.CUSTOMER, rows.customer(random, 0, now))
    connection.execute("UPDATE customers SET full_name = 'Nobody' WHERE id = %s", [number])
    connection.execute("DELETE FROM customers WHERE id = %s", [number])


def change_customer(connection: Connection, random: Random, now: datetime) -> None:
    """A customer twice in one transaction: the second change is the one that stays."""
    number = pick(connection, random, "customers")
    points = random.randint(-100, 100)
    connection.execute("UPDATE customers SET loyalty_points = loyalty_points + %s WHERE id = %s", [points, number])
    connection.execute(
        "UPDATE customers SET tier = %s, tags = %s, preferences = %s, is_subscribed = NOT is_subscribed, updated_at = %s"
        " WHERE id = %s",
        [random.choice(values.TIERS), values.tags(random), Jsonb(values.document(random)), now, number],
    )


def leave(connection: Connection, random: Random, now: datetime) -> None:
    """A customer is deleted, with all that is theirs."""
    connection.execute("DELETE FROM customers WHERE id = %s", [pick(connection, random, "customers")])


def move(connection: Connection, random: Random, now: datetime) -> None:
    """An address changes, or goes."""
    number = pick(connection, random, "addresses")
    if random.random() < 0.2:
        connection.execute("DELETE FROM addresses WHERE id = %s", [number])
        return
    city, postcode, country = random.choice(values.CITIES)
    query = "UPDATE addresses SET city = %s, postcode = %s, country = %s, latitude = %s WHERE id = %s"
    connection.execute(query, [city, random.choice((None, postcode)), country, random.uniform(-90, 90), number])


def price(connection: Connection, random: Random, now: datetime) -> None:
    """A product's price and stock change, and its long description stays."""
    query = "UPDATE products SET price = %s, stock = stock + %s, tax_rate = %s, related_ids = %s, updated_at = %s WHERE id = %s"
    rate = values.precise(random) or Decimal(0)
    given = [values.money(random), random.randint(0, 50), rate, values.numbers(random), now]
    connection.execute(query, [*given, pick(connection, random, "products")])


def describe(connection: Connection, random: Random, now: datetime) -> None:
    """A product gets another description, large at times."""
    query = "UPDATE products SET description = %s, thumbnail = %s, updated_at = %s WHERE id = %s"
    given = [_text(random), random.randbytes(random.randint(0, 300)), now]
    connection.execute(query, [*given, pick(connection, random, "products")])


def review(connection: Connection, random: Random, now: datetime) -> None:
    """A review, large at times."""
    product, customer = pick(connection, random, "products"), pick(connection, random, "customers")
    if product is None or customer is None:
        return
    review = rows.review(random, 0, now, 1, 1)
    insert(connection, "reviews", rows.REVIEW, (0, product, customer, *review[3:5], _text(random), *review[6:8], now))


def vote(connection: Connection, random: Random, now: datetime) -> None:
    """A review is helpful; its body, which may be large, is not touched."""
    query = "UPDATE reviews SET helpful_votes = helpful_votes + 1 WHERE id = %s"
    connection.execute(query, [pick(connection, random, "reviews")])


def rewrite(connection: Connection, random: Random, now: datetime) -> None:
    """A review's body changes, or the review goes."""
    number = pick(connection, random, "reviews")
    if random.random() < 0.3:
        connection.execute("DELETE FROM reviews WHERE id = %s", [number])
    else:
        connection.execute("UPDATE reviews SET body = %s WHERE id = %s", [_text(random), number])


def promote(connection: Connection, random: Random, now: datetime) -> None:
    """A promotion is made, or changed where it is there."""
    query = (
        "INSERT INTO promotions (code, percent_off, category_ids, is_public, starts_on) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (code) DO UPDATE SET percent_off = excluded.percent_off, category_ids = excluded.category_ids"
    )
    percent = Decimal(random.randint(0, 9_000)).scaleb(-2)
    flag = random.choice((True, False, None))
    connection.execute(query, [_code(random), percent, values.numbers(random), flag, now.date()])


def rename(connection: Connection, random: Random, now: datetime) -> None:
    """A promotion gets another name, and a new one takes the old."""
    cursor = connection.execute(
        'SELECT code FROM promotions ORDER BY code COLLATE "C" LIMIT 1 OFFSET %s', [random.randint(0, 5)]
    )
    old = cursor.fetchone()
    if old is None:
        return
    new = f"{_code(random)}-{random.getrandbits(32):08x}"
    connection.execute("UPDATE promotions SET code = %s WHERE code = %s", [new, old[0]])
    if random.random() < 0.5:
        connection.execute("INSERT INTO promotions (code, percent_off, starts_on) VALUES (%s, 1, %s)", [old[0], now.date()])


def end_season(connection: Connection, random: Random, now: datetime) -> None:
    """All promotions go at once, and others come in the same transaction."""
    connection.execute("TRUNCATE promotions")
    for _ in range(3):
        promote(connection, random, now)


ACTS: dict[Act, int] = {
    order: 300,
    advance: 250,
    abandon: 30,
    cancel: 30,
    drop_order: 15,
    renumber: 15,
    join: 60,
    hurry: 10,
    change_customer: 60,
    leave: 5,
    move: 20,
    price: 60,
    describe: 10,
    review: 40,
    vote: 50,
    rewrite: 15,
    promote: 15,
    rename: 10,
    end_season: 2,
}
"""How often each happens, in a thousand."""


def _pay(connection: Connection, row: rows.Row) -> None:
    query = sql.SQL("INSERT INTO payments ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, rows.PAYMENT)), sql.SQL(", ").join(sql.Placeholder() * len(row))
    )
    connection.execute(query, row)


def _text(random: Random) -> str:
    chance = random.random()
    if chance < 0.01:
        return values.large_text(random, values.LARGEST)
    return values.large_text(random, values.LARGE) if chance < 0.2 else values.sentence(random, random.randint(0, 40))


def _code(random: Random) -> str:
    return f"{random.choice(('SAVE', 'GIFT', 'ÉTÉ'))}{random.randint(1, 30):02d}"
