"""A lake with a few rows of storefront's tables, made without a database: what a notebook looks at."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal as Amount

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.iceberg.catalog.tables import ensure_table, open_catalog, table_location
from headrace.settings import Settings
from headrace.spec.model.pipeline import TableName
from headrace.spec.model.types import Column, ColumnType, Decimal, Primitive

_CUSTOMER: dict[str, ColumnType] = {
    "id": Primitive("long"),
    "email": Primitive("string"),
    "full_name": Primitive("string"),
    "tier": Primitive("string"),
    "loyalty_points": Primitive("int"),
    "_sequence": Primitive("string"),
    "_committed_at": Primitive("timestamp"),
}
_VERSION: dict[str, ColumnType] = {
    "valid_from": Primitive("timestamp"),
    "valid_to": Primitive("timestamp"),
    "is_current": Primitive("boolean"),
}
_REVENUE: dict[str, ColumnType] = {
    "day": Primitive("date"),
    "currency": Primitive("string"),
    "sold_order_count": Primitive("long"),
    "net_amount": Decimal(28, 2),
}


def at(minute: int) -> datetime:
    return datetime(2026, 2, 24, 12, minute, tzinfo=timezone.utc)


def fill_shop_window(settings: Settings) -> None:
    """Make customers as they stand, as they were and as they changed, and revenue of two days."""
    ann = {"id": 1, "email": "ann@example.com", "full_name": "Ann", "tier": "basic", "loyalty_points": 10}
    bob = {"id": 2, "email": "bob@example.com", "full_name": "Bob", "tier": "gold", "loyalty_points": 500}
    first, second = {"_sequence": "64/64", "_committed_at": at(0)}, {"_sequence": "C8/C8", "_committed_at": at(5)}
    better = {**ann, "tier": "silver"}
    _make(settings, "shape.storefront", "customers", columns=_CUSTOMER, rows=[{**better, **second}, {**bob, **first}])
    events = [{**ann, **first, "_op": "c"}, {**bob, **first, "_op": "c"}, {**better, **second, "_op": "u"}]
    _make(settings, "stage.storefront", "customers", columns={**_CUSTOMER, "_op": Primitive("string")}, rows=events)
    versions = [
        {**ann, **first, "valid_from": at(0), "valid_to": at(5), "is_current": False},
        {**better, **second, "valid_from": at(5), "is_current": True},
        {**bob, **first, "valid_from": at(0), "is_current": True},
    ]
    _make(settings, "shape.storefront", "customers_history", columns={**_CUSTOMER, **_VERSION}, rows=versions)
    revenue: list[dict[str, object]] = [
        {"day": date(2026, 2, day), "currency": currency, "sold_order_count": day, "net_amount": Amount("10.10") * day}
        for day in (23, 24)
        for currency in ("EUR", "USD")
    ]
    _make(settings, "serve.storefront", "revenue_by_day", columns=_REVENUE, rows=revenue)


def _make(
    settings: Settings, namespace: str, name: str, *, columns: dict[str, ColumnType], rows: Sequence[dict[str, object]]
) -> None:
    table_name = TableName(namespace, name)
    table = ensure_table(
        open_catalog(settings),
        table_name,
        columns=tuple(Column(column, kind) for column, kind in columns.items()),
        location=table_location(settings, table_name),
    )
    table.append(pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(table.schema())))
