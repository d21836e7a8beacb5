"""The payments pipeline's tables: every problem that was made is found, what can be repaired is, and features see no future."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

import pycountry
import pytest

from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable, Query
from tests.pipelines.engine_build import EngineBuild
from tests.pipelines.plain_build import build, landed, rows_of
from tests.pipelines.test_payments_generators import IN_PROPORTION, MODULES, Row, clean, counted, make, payments, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLEANED = [f"payment_{stream}_cleaned" for stream in MODULES]
OFTEN = {"late": 0.1, "duplicate": 0.05}
AN_HOUR_AND_MORE = 8_000
"""So many charges take a little longer than an hour."""
NOTHING = ("", "null", "none")
REFERENCE_COLUMNS = [
    *("event_id", "event_type", "provider", "charge_id", "customer_id", "amount", "currency", "status", "failure_code"),
    *("card_country", "risk_score", "risk_level", "created_at", "updated_at"),
]

STRAGGLERS = 100
"""Of the earlier half of the charges, one in so many comes a build too late."""

Rows = dict[str, list[Row]]


@dataclass(frozen=True)
class Built:
    """What the engine built in two rounds: the training set after the first, and all tables after the second; and the same rows
    by plain queries."""

    training_then: list[Row]
    tables: Rows
    plainly: Rows


def table(name: str) -> LayerTable:
    return next(table for table in payments().tables if table.table.name == name)


@lru_cache(maxsize=1)
def rounds() -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Make all streams for the same span of time, and cuts them where half of the charges have been made.

    What was made earlier comes in the first round, apart from a few charges, which come last of all.
    """
    events_by_stream = {name: make(name, AN_HOUR_AND_MORE // IN_PROPORTION[name], OFTEN) for name in MODULES}
    until = half_time(events_by_stream["charges"])
    earlier = {name: [event for event in events if event["created_at"] <= until] for name, events in events_by_stream.items()}
    later = {name: [event for event in events if event["created_at"] > until] for name, events in events_by_stream.items()}
    sent = Counter(event["event_id"] for event in events_by_stream["charges"])
    late = [event for event in earlier["charges"][::STRAGGLERS] if sent[event["event_id"]] == 1]
    earlier["charges"] = [event for event in earlier["charges"] if event not in late]
    later["charges"] += late
    return earlier, later


def half_time(charges: list[Row]) -> str:
    return str(sorted(event["created_at"] for event in charges)[len(charges) // 2])


def events(name: str) -> list[Row]:
    """Return a stream's events in the order in which they arrived."""
    return [event for part in rounds() for event in part[name]]


def build_plainly(spark: SparkSession, events_by_stream: Mapping[str, list[Row]], prefix: str, only: str | None = None) -> Rows:
    raw = {stream_of(name).table.name: landed(spark, stream_of(name), rows) for name, rows in events_by_stream.items()}
    tables = build(spark, payments().folder, raw, prefix=prefix, only=only)
    return {name: rows_of(frame) for name, frame in tables.items() if name not in raw}


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Built:
    engine = EngineBuild(tmp_path_factory.mktemp("payments"), spark, payments())
    first, second = rounds()
    engine.land_and_build(first)
    training_then = engine.rows("fraud_training_set")
    engine.land_and_build(second)
    tables = {table.table.name: engine.rows(table.table.name) for table in payments().tables}
    return Built(training_then, tables, build_plainly(spark, {name: events(name) for name in MODULES}, "all"))


@pytest.fixture(scope="module")
def tables(built: Built) -> Rows:
    return built.tables


def once(name: str) -> list[Row]:
    """Return what was made without the duplicates, which are the same to the letter."""
    return list({event["event_id"]: event for event in events(name)}.values())


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("Z") + "+00:00")


# what the files say


def test_tables_and_their_kinds() -> None:
    assert {table.table.name: table.kind for table in payments().tables} == {
        "iso_countries": "full",
        "iso_currencies": "full",
        **dict.fromkeys(CLEANED, "upsert"),
        "disputes": "aggregate",
        "subscriptions": "aggregate",
        "subscription_history": "history",
        "payment_transactions": "upsert",
        "customer_days": "aggregate",
        "customers": "aggregate",
        "merchant_days": "aggregate",
        "merchants": "aggregate",
        "charges_enriched": "aggregate",
        "charge_features": "features",
        "fraud_training_set": "aggregate",
        "payments_daily": "aggregate",
        "failure_and_dispute_rates": "aggregate",
        "payment_events": "append",
        "repeated_events": "features",
        "event_arrivals": "features",
        "data_quality_issues": "aggregate",
        "data_quality_summary": "aggregate",
    }
    assert {table.table.namespace for table in payments().tables} == {"payments_db"}
    assert all(table.about for table in payments().tables)


def test_whatever_is_looked_up_and_can_change_is_rebuilt_on() -> None:
    constant = {"iso_countries", "iso_currencies"}
    for table in payments().tables:
        assert {name.name for name in table.lookups} - constant == {name.name for name in table.rebuild_on}, table.table


def test_no_table_depends_on_when_it_is_built() -> None:
    for table in payments().tables:
        if isinstance(table.source, Query):
            text = table.source.text.lower()
            assert not any(
                word in text for word in ("current_timestamp", "current_date", "now(", "rand(", "uuid(", "float", "double")
            ), table.table


# every problem is found


@pytest.mark.spark
@pytest.mark.parametrize("name", MODULES)
def test_every_problem_that_was_made_is_found(name: str, tables: Rows) -> None:
    problems = counted(name, events(name))
    assert set(problems) == set(MODULES[name].PROBLEMS)
    issues = [row for row in tables["data_quality_issues"] if row["stream"] == name]
    assert Counter(row["problem"] for row in issues) == problems
    summary = [row for row in tables["data_quality_summary"] if row["stream"] == name]
    assert Counter({row["problem"]: row["events_with_problem"] for row in summary}) == problems
    assert {row["events"] for row in summary} == {len(events(name))}


@pytest.mark.spark
def test_duplicate_is_never_late_and_a_late_event_is_late_at_any_hour(spark: SparkSession) -> None:
    events_by_stream = {name: clean(name, 5) for name in MODULES}
    times = ("09:59:58.000", "10:00:01.000", "09:59:59.500", "10:00:02.000")
    for event, time in zip(events_by_stream["disputes"], times, strict=False):
        event["created_at"] = event["updated_at"] = f"2026-01-01T{time}Z"
    events_by_stream["disputes"][4] = events_by_stream["disputes"][1]
    issues = build_plainly(spark, events_by_stream, "few", only="data_quality_issues")["data_quality_issues"]
    late, repeated = events_by_stream["disputes"][2]["event_id"], events_by_stream["disputes"][1]["event_id"]
    assert {(row["event_id"], row["problem"]) for row in issues} == {(late, "late"), (repeated, "duplicate")}
    assert counted("disputes", events_by_stream["disputes"]) == {"late": 1, "duplicate": 1}


# what can be repaired is


@pytest.mark.spark
@pytest.mark.parametrize("name", MODULES)
def test_events_are_there_once_and_nothing_is_written_as_text(name: str, tables: Rows) -> None:
    cleaned = tables[f"payment_{name}_cleaned"]
    assert {row["event_id"] for row in cleaned} == {event["event_id"] for event in once(name)}
    assert len(cleaned) == len(once(name))
    texts = {value for row in cleaned for value in row.values() if isinstance(value, str)}
    assert not {text for text in texts if text.strip().lower() in NOTHING or text != text.strip()}
    assert {row["provider"] for row in cleaned} == {"STRIPE", "BRAINTREE", "ADYEN"}
    assert "unknown" not in {row["common_status"] for row in cleaned}
    known = {currency.alpha_3 for currency in pycountry.currencies} | {None}
    assert {row["currency"] for row in cleaned} <= known


@pytest.mark.spark
def test_cleaned_charges_have_known_codes(tables: Rows) -> None:
    assert list(tables["payment_charges_cleaned"][0])[: len(REFERENCE_COLUMNS)] == REFERENCE_COLUMNS
    known = {country.alpha_2 for country in pycountry.countries}
    by_id = {row["event_id"]: row for row in tables["payment_charges_cleaned"]}
    for event in once("charges"):
        row = by_id[event["event_id"]]
        assert row["currency"] == event["currency"].upper()
        for field in ("card_country", "billing_country"):
            assert row[field] == (event[field] if event[field] in known else None)
        assert f"charge.{row['common_status']}" == event["event_type"]
        assert (row["failure_category"] is not None) == (event["event_type"] == "charge.failed")
        assert row["failure_category"] != "other"
        assert (row["amount"], row["created_at"]) == (event["amount"], moment(event["created_at"]))


@pytest.mark.spark
def test_cleaned_refunds_and_subscriptions(tables: Rows) -> None:
    refunds = {row["event_id"]: row for row in tables["payment_refunds_cleaned"]}
    for event in once("refunds"):
        assert f"refund.{refunds[event['event_id']]['common_status']}" == event["event_type"], "also where there is no status"
    reasons = {"requested_by_customer", "duplicate", "fraudulent", "product_not_received", "product_unacceptable"}
    assert {row["reason"] for row in refunds.values()} == reasons
    assert {row["plan_interval"] for row in tables["payment_subscriptions_cleaned"]} == {"week", "month", "year"}


@pytest.mark.spark
def test_what_one_event_lacks_another_knows(tables: Rows) -> None:
    currency = {row["charge_id"]: row["currency"] for row in tables["payment_charges_cleaned"]}
    disputes = tables["disputes"]
    assert len(disputes) == len({event["dispute_id"] for event in once("disputes")})
    assert all(row["currency"] == currency[row["charge_id"]] for row in disputes)
    with_trial = {event["subscription_id"] for event in once("subscriptions") if event["trial_start"]}
    with_promo = {event["subscription_id"] for event in once("subscriptions") if event["promo_code"]}
    for row in tables["subscriptions"]:
        assert row["trial_start"] is not None or row["subscription_id"] not in with_trial
        assert row["promo_code"] is not None or row["subscription_id"] not in with_promo
        assert row["trial_start"] in (None, row["started_at"])
        if row["trial_start"]:
            assert row["trial_end"] - row["trial_start"] == timedelta(days=row["trial_days"])


# the same in one shape


@pytest.mark.spark
def test_transactions_have_signed_amounts(tables: Rows) -> None:
    zero, signed = Decimal("0.00"), dict[str, Decimal]()
    for event in once("charges"):
        signed[event["event_id"]] = event["amount"] if event["event_type"] == "charge.succeeded" else zero
    for event in once("refunds"):
        signed[event["event_id"]] = -event["amount"] if event["event_type"] == "refund.succeeded" else zero
    for event in once("disputes"):
        won = event["amount"] if event["status"].lower() == "won" else zero
        signed[event["event_id"]] = -event["amount"] if event["event_type"] == "dispute.created" else won
    amounts = {row["event_id"]: row["signed_amount"] for row in tables["payment_transactions"]}
    assert amounts == signed
    daily = tables["payments_daily"]
    assert sum(row["net_amount"] for row in daily) == sum(signed.values())
    assert sum(row["transaction_count"] for row in daily) == len(signed)


@pytest.mark.spark
def test_charges_know_what_became_of_them(tables: Rows) -> None:
    refunded: Counter[str] = Counter()
    for event in once("refunds"):
        refunded[event["charge_id"]] += event["amount"] if event["event_type"] == "refund.succeeded" else 0
    fraud = {event["charge_id"]: event["reason"] == "fraudulent" for event in once("disputes")}
    enriched = tables["charges_enriched"]
    assert len(enriched) == len(once("charges"))
    emails = {event["customer_id"]: event["metadata"]["user_email"] for event in once("charges")}
    names = {event["merchant_id"]: event["merchant_name"] for event in once("charges")}
    for row in enriched:
        assert row["refunded_amount"] == refunded.get(row["charge_id"], 0)
        assert (row["is_disputed"], row["is_disputed_as_fraud"]) == (
            row["charge_id"] in fraud,
            fraud.get(row["charge_id"], False),
        )
        assert (row["customer_email"], row["merchant_name"]) == (emails[row["customer_id"]], names[row["merchant_id"]])
    rates = tables["failure_and_dispute_rates"]
    assert sum(row["charges"] for row in rates) == len(enriched)
    assert sum(row["disputed"] for row in rates) == len(fraud)


# no feature sees the future


@pytest.mark.spark
def test_features_are_of_the_hour_up_to_the_charge(tables: Rows) -> None:
    of_customer: dict[str, list[Row]] = {}
    for event in once("charges"):
        of_customer.setdefault(event["customer_id"], []).append(event)
    features = {row["event_id"]: row for row in tables["charge_features"]}
    assert len(features) == len(once("charges"))
    for charges in of_customer.values():
        for event in charges:
            until = moment(event["created_at"])
            seen = [charge for charge in charges if until - timedelta(hours=1) <= moment(charge["created_at"]) <= until]
            row = features[event["event_id"]]
            assert row["transactions_1h"] == len(seen)
            assert row["total_amount_1h"] == sum(charge["amount"] for charge in seen)
            assert row["avg_risk_1h"] == pytest.approx(sum(charge["risk_score"] for charge in seen) / len(seen))


@pytest.mark.spark
def test_training_sees_no_future(built: Built) -> None:
    """Whatever is made after a charge, its features stay what they were; only the label may come later."""
    first, second = rounds()
    until = max(event["created_at"] for event in first["charges"])
    too_late = {event["customer_id"] for event in second["charges"] if event["created_at"] <= until}
    then = {row["event_id"]: row for row in built.training_then}
    now = {row["event_id"]: row for row in built.tables["fraud_training_set"]}
    assert len(then) == len({event["event_id"] for event in first["charges"]})
    label = {"is_fraud", "label_known_at"}
    for event_id, row in then.items():
        if row["customer_id"] not in too_late:
            assert {name: row[name] for name in row if name not in label} == {
                name: value for name, value in now[event_id].items() if name not in label
            }
    came_later = [event_id for event_id in then if now[event_id]["is_fraud"] and not then[event_id]["is_fraud"]]
    assert came_later
    assert all(now[event_id]["label_known_at"] > moment(until) for event_id in came_later)
    assert any(row["frauds_before"] for row in now.values())
    assert all(row["label_known_at"] > row["created_at"] for row in now.values() if row["is_fraud"])


# however it is built


@pytest.mark.spark
@pytest.mark.parametrize("name", [table.table.name for table in payments().tables])
def test_two_builds_come_to_what_plain_queries_over_everything_come_to(name: str, built: Built) -> None:
    built_rows = Counter(repr(sorted(row.items())) for row in built.tables[name])
    wanted = Counter(repr(sorted(row.items())) for row in built.plainly[name])
    if table(name).kind == "history":
        stated = [{key: value for key, value in row.items() if key not in HISTORY_COLUMNS} for row in built.tables[name]]
        built_rows = Counter(repr(sorted(row.items())) for row in stated)
        assert built_rows <= wanted, "each state is one that an event told of"
        current = [row["subscription_id"] for row in built.tables[name] if row["is_current"]]
        assert sorted(current) == sorted({row["subscription_id"] for row in built.plainly[name]})
    else:
        assert (sorted(wanted - built_rows)[:3], sorted(built_rows - wanted)[:3]) == ([], []), "(missing, surplus)"
