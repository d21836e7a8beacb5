"""Single webhooks through the commerce pipeline's staging queries: currencies, amounts, names, blanks, expanded objects."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from headrace.quality.expectations import measure
from headrace.spec.model.layers import Query
from tests.pipelines.plain_build import landed
from tests.support.webhooks import commerce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
AT = "2026-01-02T10:00:00Z"


@dataclass(frozen=True)
class Staged:
    """The rows that pass, and the reason of each refused row by its `_raw_id`."""

    rows: list[Row]
    reasons: dict[str, str]

    def row(self) -> Row:
        assert (len(self.rows), self.reasons) == (1, {})
        return self.rows[0]


Stage = Callable[[str, Mapping[str, Sequence[Row]]], Staged]


@pytest.fixture(scope="module")
def stage(spark: SparkSession) -> Stage:
    """Return a function that runs a staging table's query and expectations on raw events, without a lake."""
    reference = importlib.import_module("headrace.pipelines.commerce.reference.iso_currencies")
    reference.iso_currencies(spark).createOrReplaceTempView("commerce_iso_currencies")

    def run(name: str, events: Mapping[str, Sequence[Row]]) -> Staged:
        table = next(candidate for candidate in commerce().tables if candidate.table.name == name)
        assert isinstance(table.source, Query)
        text = table.source.text.replace("reference.iso_currencies", "commerce_iso_currencies")
        for stream in commerce().streams:
            if f"raw.{stream.name}" in text:
                sent = events.get(stream.name, [])
                landed(spark, stream, sent or [{}]).limit(len(sent)).createOrReplaceTempView(f"commerce_{stream.name}")
                text = text.replace(f"raw.{stream.name}", f"commerce_{stream.name}")
        measured = measure(spark.sql(text), table.expectations)
        refused = {json.loads(row["row"])["_raw_id"]: row["reason"] for row in measured.refused.collect()}
        return Staged([row.asDict(recursive=True) for row in measured.good.collect()], refused)

    return run


def order(**fields: Any) -> Row:
    return {
        "id": "1",
        "currency": "EUR",
        "total_price": "1.00",
        "subtotal_price": "1.00",
        "created_at": AT,
        "updated_at": AT,
        "_webhook_topic": "orders/create",
        "_event_id": "event",
        **fields,
    }


def charge(**fields: Any) -> Row:
    return {
        "id": "ch_1",
        "currency": "eur",
        "amount": 100,
        "amount_captured": 100,
        "amount_refunded": 0,
        "status": "succeeded",
        "created": AT,
        "event_created": AT,
        "_webhook_topic": "charge.succeeded",
        "_event_id": "event",
        **fields,
    }


def test_currencies_that_iso_4217_dropped_are_kept(stage: Stage) -> None:
    codes = {"BGN", "STD", "ANG", "HRK", "MRO", "BYR", "SLL", "ZWL", "USD"}
    orders = [order(id=code, currency=code) for code in codes]
    charges = [charge(id=code, currency=code.lower()) for code in codes]
    assert {row["currency"] for row in stage("stg_shopify_orders", {"shopify_orders": orders}).rows} == codes
    assert {row["currency"] for row in stage("stg_stripe_charges", {"stripe_charges": charges}).rows} == codes


def test_amounts_have_the_minor_units_of_their_currency(stage: Stage) -> None:
    orders = [
        order(id=code, currency=code, total_price=total, subtotal_price=total, _event_id=f"{code} {total}")
        for code, total in [
            *(("KWD", "12.345"), ("KWD", "12.3450"), ("JPY", "1200"), ("JPY", "1200.00"), ("USD", "12.34"), ("ISK", "5.50")),
            *(("USD", "12.345"), ("JPY", "1200.50"), ("KWD", "12.3456")),
        ]
    ]
    staged = stage("stg_shopify_orders", {"shopify_orders": orders})
    assert {(row["_raw_id"], row["total_amount"], row["subtotal_amount"]) for row in staged.rows} == {
        ("KWD 12.345", Decimal("12.345"), Decimal("12.345")),
        ("KWD 12.3450", Decimal("12.345"), Decimal("12.345")),
        ("JPY 1200", Decimal(1200), Decimal(1200)),
        ("JPY 1200.00", Decimal(1200), Decimal(1200)),
        ("USD 12.34", Decimal("12.34"), Decimal("12.34")),
        ("ISK 5.50", Decimal("5.5"), Decimal("5.5")),
    }
    assert staged.reasons == {
        "USD 12.345": "the total has no more decimals than its currency",
        "JPY 1200.50": "the total has no more decimals than its currency",
        "KWD 12.3456": "each amount has at most 16 digits before the point and 3 after it",
    }
    charges = [charge(id=code, currency=code, amount=12345) for code in ("kwd", "jpy", "usd", "isk", "mga", "byr")]
    amounts = {row["charge_id"]: row["amount"] for row in stage("stg_stripe_charges", {"stripe_charges": charges}).rows}
    assert amounts == {
        "kwd": Decimal("12.345"),
        "jpy": Decimal(12345),
        "usd": Decimal("123.45"),
        "isk": Decimal("123.45"),
        "mga": Decimal(12345),
        "byr": Decimal(12345),
    }


def test_amount_that_does_not_fit_is_refused_for_that_reason_alone(stage: Stage) -> None:
    totals = ("9999999999999999.99", "10000000000000000.00", "1e30", "free", "-1.00", "", "0.0004")
    orders = [order(total_price=total, subtotal_price="1.00", _event_id=total) for total in totals]
    orders += [order(total_tax="10000000000000000.00", _event_id="tax"), order(total_discounts="1.00001", _event_id="off")]
    staged = stage("stg_shopify_orders", {"shopify_orders": orders})
    assert [row["total_amount"] for row in staged.rows] == [Decimal("9999999999999999.99")]
    fits = "each amount has at most 16 digits before the point and 3 after it"
    assert staged.reasons == {
        "10000000000000000.00": fits,
        "1e30": fits,
        "free": "the total is an amount",
        "-1.00": "the total is an amount",
        "": "the total is an amount",
        "0.0004": fits,
        "tax": fits,
        "off": fits,
    }
    charges = [
        charge(currency="jpy", amount=10**15, _event_id="too large"),
        charge(currency="clf", amount=12345, amount_captured=0, _event_id="too fine"),
        charge(currency="jpy", amount_captured=10**15, _event_id="too much captured"),
        charge(currency="zzz", _event_id="no currency"),
        charge(amount=0, _event_id="nothing"),
        charge(amount=None, _event_id="none"),
    ]
    staged = stage("stg_stripe_charges", {"stripe_charges": charges})
    fits = "each amount has at most 15 digits before the point and 3 after it"
    assert (staged.rows, staged.reasons) == (
        [],
        {
            "too large": fits,
            "too fine": fits,
            "too much captured": fits,
            "no currency": "the currency is in ISO 4217",
            "nothing": "the amount is positive",
            "none": "the amount is positive",
        },
    )


def test_names_that_look_like_missing_values_survive(stage: Stage) -> None:
    names = ("Null", "Nan", "Nil", "None", "NULL")
    doubled = {(name, name, f"{name} {name}") for name in names}

    shoppers, orders, payers, charges, contacts = (list[Row]() for _ in range(5))
    for name in names:
        who = {"first_name": name, "last_name": name}
        address = json.dumps({**who, "city": name, "country_code": "TH"})
        properties = {
            "firstname": name,
            "lastname": {"value": name},
            "company": name,
            "city": name,
            "email": "null",
            "phone": "N/A",
        }
        common = {"_event_id": name, "created_at": AT}
        shoppers.append({"id": name + "7", **who, "default_address": address, **common, "_webhook_topic": "customers/create"})
        orders += [
            order(customer=json.dumps({"id": 7, **who})),
            order(billing_address=address),
            order(shipping_address=address),
        ]
        payers.append({"id": f"cus_{name}", "name": name, "created": AT, "_webhook_topic": "customer.created"})
        charges.append(charge(billing_details=json.dumps({"name": name, "email": "null"})))
        contact = {"id": name + "11", "properties": json.dumps(properties), "occurred_at": AT, "_event_id": name}
        contacts.append({**contact, "_webhook_topic": "contact.creation"})

    rows = stage("stg_shopify_customers", {"shopify_customers": shoppers}).rows
    assert {(row["first_name"], row["last_name"], row["full_name"]) for row in rows} == doubled
    assert {row["city"] for row in rows} == {*names}
    rows = stage("stg_shopify_orders", {"shopify_orders": orders}).rows
    assert len(rows) == 3 * len(names)
    assert {(row["first_name"], row["last_name"], row["full_name"]) for row in rows} == doubled
    assert {row["full_name"] for row in stage("stg_stripe_customers", {"stripe_customers": payers}).rows} == {*names}
    rows = stage("stg_stripe_charges", {"stripe_charges": charges}).rows
    assert {(row["billing_name"], row["billing_email"]) for row in rows} == {(name, None) for name in names}
    rows = stage("hubspot_properties", {"hubspot_contacts": contacts}).rows
    assert {(row["property"], row["value"]) for row in rows if not row["property"].startswith("_")} == {
        *((field, name) for field in ("firstname", "lastname", "company", "city") for name in names),
        *(("email", None), ("phone", None)),
    }


def test_tabs_and_line_breaks_around_values_are_trimmed(stage: Stage) -> None:
    def padded(text: str) -> str:
        return f"\t {text}\t\r\n"

    who = {"first_name": padded("Ada"), "last_name": padded("Lovelace"), "email": padded("ada@example.com")}
    shopper = {"id": padded("7"), **who, "tags": "vip\t,\tnew", "created_at": AT, "_event_id": "event"}
    shopper["default_address"] = json.dumps({"city": padded("London"), "zip": padded("N1"), "country_code": padded("gb")})
    row = stage("stg_shopify_customers", {"shopify_customers": [{**shopper, "_webhook_topic": "customers/create"}]}).row()
    assert [row[name] for name in ("customer_id", "email", "full_name", "city", "postal_code", "country", "tags")] == [
        *("7", "ada@example.com", "Ada Lovelace", "London", "N1", "GB"),
        ["new", "vip"],
    ]
    placed = order(
        id=padded("1"),
        email=padded("ada@example.com"),
        currency=padded("EUR"),
        total_price=padded("1.00"),
        financial_status=padded("paid"),
        customer=json.dumps({"id": 7, **who}),
    )
    row = stage("stg_shopify_orders", {"shopify_orders": [placed]}).row()
    assert [row[name] for name in ("order_id", "email", "currency", "total_amount", "financial_status", "full_name")] == [
        *("1", "ada@example.com", "EUR", Decimal(1), "paid", "Ada Lovelace")
    ]
    paid = charge(
        id=padded("ch_1"),
        customer=padded("cus_1"),
        currency=padded("eur"),
        status=padded("succeeded"),
        billing_details=json.dumps({"name": padded("Ada Lovelace"), "email": padded("ada@example.com")}),
    )
    row = stage("stg_stripe_charges", {"stripe_charges": [paid]}).row()
    assert [row[name] for name in ("charge_id", "customer_id", "currency", "status", "billing_name", "billing_email")] == [
        *("ch_1", "cus_1", "EUR", "succeeded", "Ada Lovelace", "ada@example.com")
    ]
    row = stage("stg_stripe_customers", {"stripe_charges": [paid]}).row()
    assert [row[name] for name in ("customer_id", "full_name", "email")] == ["cus_1", "Ada Lovelace", "ada@example.com"]
    contact = {
        "id": padded("11"),
        "property_name": padded("Email"),
        "property_value": padded("ada@example.com"),
        "occurred_at": AT,
        "_webhook_topic": "contact.propertyChange",
        "_event_id": "event",
    }
    row = stage("hubspot_properties", {"hubspot_contacts": [contact]}).row()
    assert (row["object_id"], row["property"], row["value"]) == ("11", "email", "ada@example.com")


def test_expanded_stripe_customer_gives_email_and_name(stage: Stage) -> None:
    customer = {
        "id": "cus_1",
        "object": "customer",
        "email": "ada@example.com",
        "name": "Ada Lovelace",
        "phone": "+442079460000",
    }
    details = {"email": "card@example.com", "name": "A Lovelace"}
    for billing in ({}, {"billing_details": json.dumps(details)}):
        events = {"stripe_charges": [charge(customer=json.dumps(customer), **billing)]}
        row = stage("stg_stripe_customers", events).row()
        assert [row[name] for name in ("customer_id", "email", "full_name", "phone")] == [
            *("cus_1", "ada@example.com", "Ada Lovelace", "+442079460000")
        ]
        assert stage("stg_stripe_charges", events).row()["customer_id"] == "cus_1"
    bare = charge(customer=json.dumps({"id": "cus_1", "email": None, "name": None}), billing_details=json.dumps(details))
    row = stage("stg_stripe_customers", {"stripe_charges": [bare]}).row()
    assert (row["email"], row["full_name"]) == ("card@example.com", "A Lovelace")
