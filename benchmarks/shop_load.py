"""Row changes in the shop's Postgres, made by statements over many rows, so that making them costs next to nothing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import Connection

TABLES = ("orders", "payments")
"""The tables that are written to. Half of all changes are inserts, three in ten are updates, and two are deletes."""

_INSERT_ORDERS = (
    "INSERT INTO orders (customer_id, status, total, note) SELECT %(customer)s, 'pending', (n %% 100000) / 100.0,"
    " 'order ' || n FROM generate_series(1, %(rows)s) AS n RETURNING id"
)
_INSERT_PAYMENTS = (
    "INSERT INTO payments (id, order_id, status, amount, provider) SELECT gen_random_uuid(), n, 'authorized', 10.25, 'card'"
    " FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n"
)
_UPDATE_ORDERS = "UPDATE orders SET status = 'paid', updated_at = now() WHERE id BETWEEN %(first)s AND %(last)s"
_DELETE_PAYMENTS = "DELETE FROM payments WHERE order_id BETWEEN %(first)s AND %(last)s"
_OF_TEN = 3
"""Of ten changes three insert orders, two their payments, three update orders, and two delete payments."""
_BEHIND = 10
"""So many transactions later an order is updated and its payment deleted: in one transaction nothing would be left of them."""


@dataclass(frozen=True)
class Transaction:
    """When a transaction had been committed (Unix time), and how many rows it changed."""

    committed: float
    changes: int


def change_rows(
    connection: Connection, *, changes: int, customer: int, at_once: int, rate: float | None
) -> Iterator[Transaction]:
    """Make so many row changes, `at_once` in a transaction: at a rate, or as fast as it goes."""
    started, changed = time.monotonic(), 0
    waiting: deque[dict[str, int]] = deque()
    while changed < changes:
        if rate is not None:
            time.sleep(max(0.0, started + changed / rate - time.monotonic()))
        tenth = max(1, min(at_once, changes - changed) // 10)
        with connection.transaction():
            numbers = connection.execute(_INSERT_ORDERS, {"customer": customer, "rows": _OF_TEN * tenth}).fetchall()
            first = numbers[0][0]
            waiting.append({"first": first, "last": first + _OF_TEN * tenth - 1})
            done = _OF_TEN * tenth
            done += connection.execute(_INSERT_PAYMENTS, {"first": first, "last": first + 2 * tenth - 1}).rowcount
            if len(waiting) > _BEHIND:
                paid = waiting.popleft()
                done += connection.execute(_UPDATE_ORDERS, paid).rowcount
                done += connection.execute(_DELETE_PAYMENTS, paid).rowcount
        changed += done
        yield Transaction(time.time(), done)
