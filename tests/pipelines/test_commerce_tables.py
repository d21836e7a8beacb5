"""The commerce pipeline's tables against plain arithmetic over raw webhooks: to the cent, whatever came twice or too late."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from headrace.spec.model.layers import Query
from tests.pipelines.engine_build import EngineBuild
from tests.pipelines.plain_commerce import (
    Place,
    Row,
    Sums,
    newest_charges,
    newest_contacts,
    newest_orders,
    sums_by_person,
    sums_of,
)
from tests.pipelines.played_commerce import DELETED_ORDERS, by_stream, change_phone, in_two, played
from tests.support.webhooks import commerce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER_COLUMNS = [
    "order_id",
    "order_number",
    "customer_id",
    "email",
    "total_amount",
    "subtotal_amount",
    "tax_amount",
    "discount_amount",
    "shipping_amount",
    "currency",
    "line_item_count",
    "financial_status",
    "fulfillment_status",
    "is_paid",
    "is_fulfilled",
    "shipping_city",
    "shipping_state",
    "shipping_country",
    "billing_city",
    "billing_state",
    "billing_country",
    "order_date",
    "created_at",
    "updated_at",
    "_raw_id",
    "_staged_at",
]

Tables = dict[str, list[Row]]


@dataclass(frozen=True)
class State:
    """The messages that had come until a build, and the tables after it."""

    sent: dict[str, list[Row]]
    tables: Tables


@dataclass(frozen=True)
class Built:
    """The tables after a build, after a second build that merges two people, and after a full refresh."""

    merged: tuple[str, str]
    before: State
    after: State
    refreshed: State
    answers: dict[str, list[Row]]


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Built:
    engine = EngineBuild(tmp_path_factory.mktemp("commerce"), spark, commerce())
    first, second = in_two(played())
    engine.land_and_build(by_stream(first))
    before = all_tables(engine)
    one, other, phone = two_buyers(before)
    customer = next(row for row in before["stg_shopify_customers"] if row["customer_id"] == one)
    second += change_phone(one, email=customer["email"], phone=phone)
    engine.land_and_build(by_stream(second))
    after, sent = all_tables(engine), by_stream([*first, *second])
    answers = {query.about: engine.ask(query.sql) for query in commerce().queries}
    engine.build(full_refresh=True)
    refreshed = State(sent, all_tables(engine))
    return Built((one, other), State(by_stream(first), before), State(sent, after), refreshed, answers)


def all_tables(engine: EngineBuild) -> Tables:
    return {table.table.name: engine.rows(table.table.name) for table in commerce().tables}


def people(tables: Tables) -> dict[tuple[str, str], str]:
    return {(row["source"], row["source_id"]): row["entity_id"] for row in tables["entity_index"]}


def two_buyers(tables: Tables) -> tuple[str, str, str]:
    """Return two customers of the shop who bought and are two people, and the phone of the second."""
    bought = {row["customer_id"] for row in tables["stg_shopify_orders"] if not row["is_cancelled"]}
    entity, shared = people(tables), dict[str | None, set[str]]()
    for row in tables["entity_index"]:
        shared.setdefault(row["phone_normalized"], set()).add(row["entity_id"])
    own = {row["customer_id"] for row in tables["stg_shopify_customers"] if row["told_by"] == "customer"}
    buyers = [row for row in tables["entity_index"] if row["source"] == "shopify" and row["source_id"] in bought & own]
    for other in buyers:
        for one in buyers:
            phone = other["phone_normalized"]
            if phone and len(shared[phone]) == 1 and entity["shopify", one["source_id"]] != other["entity_id"] and one["email"]:
                return one["source_id"], other["source_id"], phone
    raise AssertionError("nobody to merge: another seed is needed")


def said_of_people(tables: Tables) -> dict[Place, Sums]:
    """Return what customer_360 says of each person and currency."""
    return {
        (row["entity_id"], amounts["currency"]): sums_of(amounts)
        for row in tables["customer_360"]
        for amounts in row["amounts"]
    }


# what the files say


def test_tables_of_the_reference_are_there() -> None:
    names = {str(table.table) for table in commerce().tables}
    for layer, tables in {
        "staging": ("stg_shopify_orders", "stg_shopify_customers", "stg_stripe_charges", "stg_hubspot_contacts"),
        "semantic": ("entity_index", "blocking_index", "entity_resolution_stats"),
        "analytics": ("customer_metrics", "order_summary", "payment_metrics"),
        "marts": ("customer_360", "sales_dashboard_daily"),
    }.items():
        assert {f"{layer}.{table}" for table in tables} <= names
    assert all(table.about for table in commerce().tables)
    assert {table.table.name for table in commerce().tables if table.kind == "full"} == {
        "iso_currencies",
        "entity_resolution_stats",
    }


def test_what_is_looked_up_is_rebuilt_on_and_no_table_depends_on_when_it_is_built() -> None:
    for table in commerce().tables:
        assert {name.name for name in table.lookups} - {"iso_currencies"} == {name.name for name in table.rebuild_on}, (
            table.table
        )
        if isinstance(table.source, Query):
            text = table.source.text.lower()
            assert not any(word in text for word in ("current_timestamp", "now(", "rand(", "uuid(", "float", "double"))


# how things stand


@pytest.mark.spark
def test_orders_stand_as_the_newest_of_their_webhooks_says(built: Built) -> None:
    orders = {row["order_id"]: row for row in built.after.tables["stg_shopify_orders"]}
    wanted = newest_orders(built.after.sent["shopify_orders"])
    assert set(orders) == set(wanted)
    assert not {str(5_000_000_000_000 + number) for number in DELETED_ORDERS} & set(orders)
    for identity, order in wanted.items():
        row = orders[identity]
        assert row["total_amount"] == Decimal(order["total_price"])
        assert (row["financial_status"], row["is_cancelled"]) == (order["financial_status"], order["cancelled_at"] is not None)
        assert row["_raw_id"] == order["_event_id"]
    assert list(built.after.tables["stg_shopify_orders"][0])[: len(ORDER_COLUMNS)] == ORDER_COLUMNS


@pytest.mark.spark
def test_charges_are_in_whole_units_of_their_currency(built: Built) -> None:
    charges = {row["charge_id"]: row for row in built.after.tables["stg_stripe_charges"]}
    wanted = newest_charges(built.after.sent["stripe_charges"])
    assert set(charges) == set(wanted)
    assert {row["currency"] for row in charges.values()} >= {"USD", "JPY", "KWD"}
    for identity, charge in wanted.items():
        unit = {"jpy": 1, "kwd": 1000}.get(charge["currency"], 100)
        assert charges[identity]["amount"] * unit == charge["amount"]
        assert charges[identity]["amount_refunded"] * unit == charge["amount_refunded"]


@pytest.mark.spark
def test_contacts_are_what_their_events_left(built: Built) -> None:
    wanted = newest_contacts(built.after.sent["hubspot_contacts"])
    contacts = {row["contact_id"]: row for row in built.after.tables["stg_hubspot_contacts"]}
    assert set(contacts) == set(wanted)
    for identity, known in wanted.items():
        row = contacts[identity]
        stood = {"email": row["email"], "phone": row["phone"], "lifecyclestage": row["lifecycle_stage"]}
        assert stood == {name: known.get(name) for name in stood}


# whose it is


@pytest.mark.spark
@pytest.mark.parametrize("when", ["before", "after", "refreshed"])
def test_customer_360_is_what_the_raw_webhooks_add_up_to(built: Built, when: str) -> None:
    state: State = getattr(built, when)
    tables = state.tables
    wanted = sums_by_person(state.sent["shopify_orders"], state.sent["stripe_charges"], people(tables))
    persons = said_of_people(tables)
    assert set(persons) == set(wanted)
    for place, sums in wanted.items():
        assert persons[place] == sums, place
    assert {row["entity_id"] for row in tables["customer_360"]} == set(people(tables).values())


@pytest.mark.spark
def test_when_two_people_turn_out_to_be_one_their_numbers_move(built: Built) -> None:
    one, other = (("shopify", merged_id) for merged_id in built.merged)
    then, now = people(built.before.tables), people(built.after.tables)
    assert then[one] != then[other]
    assert now[one] == now[other]
    gone = ({then[one], then[other]} - {now[one]}).pop()
    assert gone not in {row["entity_id"] for row in built.after.tables["customer_360"]}
    assert gone not in {row["entity_id"] for row in built.after.tables["customer_metrics"]}
    person = next(row for row in built.after.tables["customer_360"] if row["entity_id"] == now[one])
    assert gone in person["previous_entity_ids"]
    assert {record["source_id"] for record in person["records"]} >= {*built.merged}
    assert person["order_count"] >= 2


@pytest.mark.spark
def test_every_order_and_every_charge_is_somebodys_once(built: Built) -> None:
    for tables in (built.before.tables, built.after.tables, built.refreshed.tables):
        for name, staged, counted in (
            ("entity_orders", "stg_shopify_orders", "order_count"),
            ("entity_charges", "stg_stripe_charges", "charge_count"),
        ):
            assert len(tables[name]) == len(tables[staged])
            assert all(row["is_in_index"] for row in tables[name])
            assert sum(row[counted] for row in tables["customer_360"]) == len(tables[staged])
            assert sum(row[counted] for row in tables["sales_dashboard_daily"]) == len(tables[staged])


@pytest.mark.spark
def test_days_and_months_add_up_to_the_same_as_people(built: Built) -> None:
    def total(rows: list[Row], currency: str, column: str) -> Decimal:
        return Decimal(sum(row[column] for row in rows if row["currency"] == currency))

    tables = built.after.tables
    by_person = tables["customer_metrics"]
    for currency in {row["currency"] for row in by_person}:
        for column in ("ordered_amount", "cancelled_amount", "charged_amount", "refunded_amount", "net_amount"):
            wanted = total(by_person, currency, column)
            assert total(tables["sales_dashboard_daily"], currency, column) == wanted
        for period in ("day", "month"):
            rows = [row for row in tables["order_summary"] if row["period"] == period]
            assert total(rows, currency, "ordered_amount") == total(by_person, currency, "ordered_amount")
        assert total(tables["payment_metrics"], currency, "net_amount") == total(by_person, currency, "net_amount")


@pytest.mark.spark
def test_what_the_demo_asks_is_answered(built: Built) -> None:
    webhooks, known, days = built.answers.values()
    assert sum(row["repeats"] for row in webhooks) > 0
    assert known
    assert all(len(row["ordered"]) == len(row["paid"]) for row in known)
    assert any(paid.startswith("USD ") for row in known for paid in row["paid"])
    assert {row["currency"] for row in days} >= {"USD", "JPY", "KWD"}


# however it is built


@pytest.mark.spark
@pytest.mark.parametrize("name", [table.table.name for table in commerce().tables])
def test_small_builds_and_one_big_one_come_to_the_same(name: str, built: Built) -> None:
    by_small_builds, wanted = (
        {repr(sorted(row.items())) for row in tables[name]} for tables in (built.after.tables, built.refreshed.tables)
    )
    assert (sorted(wanted - by_small_builds)[:2], sorted(by_small_builds - wanted)[:2]) == ([], []), "(missing, surplus)"
