"""Changes to the shop's tables while it is open: columns that are added, one that is widened, and what is written there."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

from psycopg import Connection, sql

from .traffic import pick

_LOCK_WAIT = "SET LOCAL lock_timeout = '5s'"

CHANGES = (
    ("customers", "phone", "text", "ALTER TABLE customers ADD COLUMN phone text"),
    ("orders", "channel", "text", "ALTER TABLE orders ADD COLUMN channel text"),
    ("products", "rating", "numeric", "ALTER TABLE products ADD COLUMN rating numeric(4, 2)"),
    ("order_items", "quantity", "bigint", "ALTER TABLE order_items ALTER COLUMN quantity TYPE bigint"),
    ("reviews", "edited_at", "timestamp with time zone", "ALTER TABLE reviews ADD COLUMN edited_at timestamptz"),
)
"""Table, column, its type after the change, and the change; each is made once, in this order."""


def change_next(connection: Connection) -> str | None:
    """Return the change that was made, the first that was not made before; None if all were."""
    for table, column, kind, statement in CHANGES:
        if _kind(connection, table, column) != kind:
            connection.execute(_LOCK_WAIT)
            connection.execute(sql.SQL(statement))
            return statement
    return None


def use_changes(connection: Connection, random: Random, now: datetime) -> None:
    """Write to what was added or widened, if anything was."""
    given: dict[str, Any] = {
        "phone": random.choice((None, f"+49 {random.randint(10**8, 10**9)}")),
        "channel": random.choice(("web", "app", "phone", "")),
        "rating": Decimal(random.randint(0, 500)).scaleb(-2),
        "quantity": random.randint(2**31, 2**40),
        "edited_at": now,
    }
    table, column, kind, _ = random.choice(CHANGES)
    if _kind(connection, table, column) != kind:
        return
    key = "order_id" if table == "order_items" else "id"
    number = pick(connection, random, "orders" if table == "order_items" else table)
    query = sql.SQL("UPDATE {} SET {} = %s WHERE {} = %s").format(*map(sql.Identifier, (table, column, key)))
    connection.execute(query, [given[column], number])


def _kind(connection: Connection, table: str, column: str) -> str | None:
    row = connection.execute(
        "SELECT data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name = %s AND column_name = %s",
        [table, column],
    ).fetchone()
    return row[0] if row else None
