"""Charges in random order, with ties, gaps and deletions, and a Python reference implementation of Headrace's kinds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from itertools import groupby
from typing import Any

Row = dict[str, Any]
_START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def make_charges(count: int, *, seed: int) -> list[Row]:
    """Return rows of the shop's raw table."""
    dice = random.Random(seed)
    return [
        {
            "id": f"c{dice.randrange(count // 5)}",
            "at": dice.choice([0, 1, 1_700_000_000]),
            "amount": dice.choice([None, Decimal("-1.00"), Decimal(dice.randrange(10_000)) / 100]),
            "customerId": f"p{dice.randrange(count // 8)}",
            "status": dice.choice(["new", " Paid", "paid", "failed", "deleted", None]),
            "country": dice.choice(["DE", "FR", "IT", None]),
            "updated_at": dice.choice([None, *(_START + timedelta(minutes=20 * dice.randrange(12)) for _ in range(8))]),
            "metadata": {"ip": dice.choice(["10.0.0.1", None])},
            "kafka_offset": offset,
        }
        for offset in range(count)
    ]


def expected_charges(raw: Iterable[Row]) -> list[Row]:
    """Return the rows of staging.charges."""
    charges = [
        {
            "id": row["id"],
            "customerId": row["customerId"],
            "amount": row["amount"],
            "status": row["status"] and row["status"].strip().upper(),
            "country": row["country"],
            "ip": row["metadata"]["ip"],
            "updated_at": row["updated_at"],
        }
        for row in raw
        if row["at"] > 0 and row["amount"] is not None and row["amount"] > 0 and row["country"] is not None
    ]
    newest = _newest(charges, keys=["id"], deleted=lambda row: row["status"] == "DELETED")
    return [row for row in newest if row["status"] != "DELETED"]


def expected_customers(raw: Iterable[Row]) -> list[Row]:
    """Return the versions of staging.customers; `status` is not tracked."""
    rows = [{name: row[name] for name in ("customerId", "country", "status", "updated_at")} for row in raw]
    moments = _newest(rows, keys=["customerId", "updated_at"], deleted=_is_deleted)
    versions: list[Row] = []
    for _, group in groupby(sorted(moments, key=lambda row: row["customerId"]), key=lambda row: row["customerId"]):
        ordered = sorted(group, key=lambda row: _order(row["updated_at"]))
        changes = [
            row
            for before, row in zip([None, *ordered], ordered, strict=False)
            if before is None
            or _is_deleted(row)
            or (before["country"], _is_deleted(before)) != (row["country"], _is_deleted(row))
        ]
        for row, after in zip(changes, [*changes[1:], None], strict=True):
            ends = after["updated_at"] if after else None
            versions.append(row | {"valid_from": row["updated_at"], "valid_to": ends, "is_current": after is None})
    return [row for row in versions if not _is_deleted(row)]


def expected_by_country(charges: Sequence[Row], customers: Sequence[Row]) -> list[Row]:
    """Return the rows of marts.by_country."""
    since = {row["customerId"]: row["valid_from"] for row in customers if row["is_current"]}
    totals = []
    for country in {row["country"] for row in charges}:
        rows = [row for row in charges if row["country"] == country]
        moments = [since[row["customerId"]] for row in rows if since.get(row["customerId"])]
        total = sum((row["amount"] for row in rows), Decimal(0))
        totals.append({"country": country, "charges": len(rows), "total": total, "since": max(moments, default=None)})
    return totals


def expected_spending(charges: Sequence[Row]) -> list[Row]:
    """Return the rows of features.spending."""
    spending = []
    for row in charges:
        at, mine = row["updated_at"], [charge for charge in charges if charge["customerId"] == row["customerId"]]
        hour = timedelta(hours=1)
        near = [
            charge["amount"]
            for charge in mine
            if (
                charge["updated_at"] is None if at is None else charge["updated_at"] and at - hour <= charge["updated_at"] <= at
            )
        ]
        spending.append({"id": row["id"], "customerId": row["customerId"], "updated_at": at, "spent": sum(near, Decimal(0))})
    return spending


def in_order(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return rows in a comparable form: columns sorted by name, rows by value."""
    return sorted((tuple(row[name] for name in sorted(row)) for row in rows), key=lambda row: tuple(map(_order, row)))


def _newest(rows: Iterable[Row], *, keys: Sequence[str], deleted: Callable[[Row], bool]) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)

    def order(row: Row) -> tuple[Any, ...]:
        rest = [_order(value) for name, value in row.items() if name != "updated_at"]
        return (_order(row["updated_at"]), deleted(row), *rest)

    return [max(group, key=order) for group in groups.values()]


def _is_deleted(row: Row) -> bool:
    return bool(row["status"] == "deleted")


def _order(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)
