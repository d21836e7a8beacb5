"""A table of a pipeline is tested without a broker: rows in, rows and failed expectations out, incremental and at once."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

import headrace.testing
from headrace.errors import SpecError
from headrace.testing import TableTest
from headrace.testing.differences import describe_differences
from headrace.testing.values import Row
from tests.support.orders import FILES, order

pytestmark = pytest.mark.spark

STRICT = FILES["shop/orders.sql"].replace("on_failure: drop", "on_failure: fail")


def test_names_of_testing() -> None:
    assert headrace.testing.__all__ == ["TableTest"]


def test_raw_rows_become_the_tables_rows_and_failed_expectations(shop: Path) -> None:
    with TableTest(shop, "shop.orders") as orders:
        assert (orders.rows, orders.failed) == ([], {})
        orders.build({"raw.orders": [order("a", "10.00"), order("b", "-1.00"), order("a", "12.5", minute=5)]})
        orders.expect([{"order_id": "a", "amount": "12.50", "day": date(2026, 1, 1)}], failed={"the amount is positive": 1})
        orders.build({"orders": [order("b", "3.00", minute=1), order("a", "1.00", minute=2)]})
        orders.expect([{"order_id": "a", "amount": Decimal("12.50")}, {"order_id": "b", "amount": 3}])


def test_layer_rows_are_replaced_and_removed_by_key(shop: Path) -> None:
    with TableTest(shop, "revenue") as revenue:
        first = [{"order_id": name, "day": "2026-01-01", "amount": amount} for name, amount in (("a", "10.00"), ("b", "5.00"))]
        revenue.build({"shop.orders": first})
        revenue.expect([{"day": "2026-01-01", "orders": 2, "revenue": "15.00"}])
        revenue.build({"shop.orders": [{"order_id": "b", "day": "2026-01-02", "amount": "7.00"}]})
        revenue.expect([{"day": "2026-01-01", "revenue": 10}, {"day": "2026-01-02", "revenue": 7}])
        revenue.build({}, removed={"shop.orders": [{"order_id": "a"}]})
        revenue.expect([{"day": "2026-01-02", "orders": 1}])


def test_tables_between_are_built(shop: Path) -> None:
    with TableTest(shop, "revenue") as revenue:
        revenue.build({"raw.orders": [order("a", "10.00"), order("b", "-1.00"), order("c", "5.50", day=2)]})
        revenue.expect([{"day": "2026-01-01", "revenue": 10}, {"day": "2026-01-02", "revenue": "5.50"}])


def test_rows_that_stop_the_build_are_reported(shop: Path) -> None:
    (shop / "shop" / "orders.sql").write_text(STRICT, encoding="utf-8")
    with TableTest(shop, "orders") as orders:
        orders.build({"raw.orders": [order("b", "-1.00")]})
        orders.expect([], failed={"the amount is positive": 1})
        with pytest.raises(AssertionError, match=r"expected \{\}, found \{'the amount is positive': 1\}"):
            orders.expect([])


def test_table_that_depends_on_when_it_is_built_is_refused(shop: Path) -> None:
    header = "/*\nkeys: [order_id]\nfrozen: [shop.revenue]\n*/\n"
    joined = "FROM raw.orders o LEFT JOIN shop.revenue r ON r.day = date(o.placed_at)"
    (shop / "shop" / "shares.sql").write_text(f"{header}SELECT o.order_id, r.orders {joined}", encoding="utf-8")
    with TableTest(shop, "shares") as shares:
        shares.build({"raw.orders": [order("a", "1.00")], "shop.revenue": [{"day": "2026-01-01", "orders": 1}]})
        shares.expect([{"order_id": "a", "orders": 1}])
        with pytest.raises(AssertionError, match=r"depends on when it is built[^\n]*\n  only in one build: .*orders=2"):
            shares.build({"shop.revenue": [{"day": "2026-01-01", "orders": 2}], "raw.orders": [order("b", "1.00")]})


def test_other_rows_than_expected_are_listed(shop: Path) -> None:
    with TableTest(shop, "orders") as orders:
        orders.build({"raw.orders": [order("a", "1.00")]})
        with pytest.raises(AssertionError) as raised:
            orders.expect([{"order_id": "b"}])
    assert str(raised.value) == "shop.orders differs:\n  only expected: order_id='b'\n  only found: order_id='a'"


def test_mistakes_of_a_test_are_named(shop: Path) -> None:
    with TableTest(shop, "revenue") as revenue:
        with pytest.raises(SpecError, match=r'no upstream table is called "raw.order".*\n.*raw\.orders'):
            revenue.build({"raw.order": []})
        with pytest.raises(SpecError, match=r'rows of shop.orders: not found: column "amont"\nDid you mean "amount"'):
            revenue.build({"shop.orders": [{"amont": 1}]})
        with pytest.raises(SpecError, match="a value does not fit its column"):
            revenue.build({"shop.orders": [{"day": "yesterday"}]})
        with pytest.raises(SpecError, match=r"raw\.orders was not given in the first build"):
            revenue.build({"raw.orders": []})
    with TableTest(shop, "orders") as orders:
        with pytest.raises(SpecError, match="can't be removed"):
            orders.build({}, removed={"raw.orders": [{"order_id": "a"}]})
        with pytest.raises(SpecError, match=r"rows of raw\.orders: null in a required field.*order_id.*\n.*NOT NULL"):
            orders.build({"raw.orders": [{"amount": "1.00"}]})
    with pytest.raises(SpecError, match="not found: table"):
        TableTest(shop, "orderz")


def test_differences_do_not_depend_on_order() -> None:
    left: list[Row] = [{"a": 1, "tags": [("x", 1), ("y", 2)]}, {"a": 2, "tags": None}]
    right: list[Row] = [{"a": 2, "tags": None}, {"tags": {"y": 2, "x": 1}, "a": 1}]
    assert describe_differences(left, right, labels=("left", "right")) == ""
    many = describe_differences([{"a": number} for number in range(9)], [], labels=("left", "right"))
    assert many.splitlines()[-1] == "  only left: 4 more rows"
