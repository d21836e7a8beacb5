"""A small project for tests of the Python API: orders, with a checked table and an aggregate of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.folders import write_files
from tests.support.topics import produce

FILES = {
    "pipeline.yml": """\
name: shop
about: Orders of a shop.
streams:
  orders: {topic: "${ORDERS_TOPIC:-shop-orders}", format: json, schema: schemas/order.sql, table: raw.orders}
""",
    "schemas/order.sql": "order_id STRING NOT NULL, placed_at TIMESTAMP, amount DECIMAL(10, 2), changed_at TIMESTAMP",
    "shop/orders.sql": """\
/*
keys: [order_id]
sequence_by: changed_at
expect:
  the amount is positive: {that: amount > 0, on_failure: drop}
*/
SELECT order_id, date(placed_at) AS day, amount, changed_at FROM raw.orders
""",
    "shop/revenue.sql": """\
/*
keys: [day]
*/
SELECT day, count(*) AS orders, sum(amount) AS revenue FROM shop.orders GROUP BY day
""",
}


def write_shop(folder: Path) -> Path:
    """Write the pipeline into a project's folder, and return the pipeline's folder."""
    return write_files(folder / "pipelines" / "shop", FILES)


def send_orders(servers: str, topic: str, orders: Iterable[Mapping[str, object]]) -> None:
    produce(servers, topic, [json.dumps(order).encode() for order in orders])


def order(name: str, amount: str, *, day: int = 1, minute: int = 0) -> dict[str, object]:
    return {
        "order_id": name,
        "placed_at": f"2026-01-{day:02}T10:00:00Z",
        "amount": amount,
        "changed_at": f"2026-01-{day:02}T10:{minute:02}:00Z",
    }
