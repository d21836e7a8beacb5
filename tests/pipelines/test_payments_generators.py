"""The payments pipeline's generators: what they make is the same for a seed, refers to what exists, and is as bad as asked."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.iceberg.schema.columns import iceberg_schema
from headrace.landing.decode import Decoded, decoder_of
from headrace.pipelines.payments.generators import charges, disputes, refunds, subscriptions
from headrace.pipelines.payments.generators.problems import count_problems
from headrace.pipelines.payments.generators.providers import SPELLINGS, WORDS
from headrace.sources.encode import encoder_of
from headrace.sources.generate import FIRST_MOMENT, events_of
from headrace.sources.generators import Rate
from headrace.spec import Pipeline, load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.pipeline import Stream
from headrace.spec.model.types import Decimal as DecimalType

MODULES = {"charges": charges, "refunds": refunds, "disputes": disputes, "subscriptions": subscriptions}
KINDS = [(stream, problem) for stream, module in MODULES.items() for problem in module.PROBLEMS]
SEED = 11
MANY = 20_000
IN_PROPORTION = {"charges": 1, "refunds": 4, "disputes": 10, "subscriptions": 6}
MILLISECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

Row = dict[str, Any]


@lru_cache(maxsize=1)
def payments() -> Pipeline:
    return load_pipeline("payments", environ={}, folder=Path("/nowhere"))


def stream_of(name: str) -> Stream:
    return next(stream for stream in payments().streams if stream.name == name)


def make(name: str, count: int, problems: Mapping[str, float] = {}, *, seed: int = SEED, start: int = 0) -> list[Row]:
    events = events_of(stream_of(name), Rate(seed=seed, problems=problems), start=start)
    return [dict(event) for event in islice(events, count)]


@lru_cache(maxsize=8)
def generated(name: str, count: int = MANY) -> tuple[Row, ...]:
    return tuple(make(name, count))


def clean(name: str, count: int, problems: Mapping[str, float] = {}, *, start: int = 0) -> list[Row]:
    """Make events with no problems but these."""
    return make(name, count, {**dict.fromkeys(MODULES[name].PROBLEMS, 0.0), **problems}, start=start)


def counted(name: str, events: list[Row] | tuple[Row, ...]) -> Counter[str]:
    return count_problems(events, MODULES[name].problems_of)


def decode(stream: Stream, values: list[bytes]) -> Decoded:
    return decoder_of(stream, schema_to_pyarrow(iceberg_schema(landed_columns(stream)))).decode(list(values))


# the same each time


@pytest.mark.parametrize("name", MODULES)
def test_seed_fixes_every_event(name: str) -> None:
    assert make(name, 300) == make(name, 300)
    assert make(name, 300) != make(name, 300, seed=SEED + 1)


@pytest.mark.parametrize("name", MODULES)
def test_event_n_is_the_same_wherever_one_starts(name: str) -> None:
    """Times and what is remembered of the past differ, and what the event is about doesn't."""
    about = ("event_id", "charge_id", "refund_id", "dispute_id", "subscription_id", "customer_id", "merchant_id", "amount")
    whole, rest = clean(name, 400), clean(name, 100, start=300)
    for field in about:
        assert [event.get(field) for event in whole[300:]] == [event.get(field) for event in rest]


@pytest.mark.parametrize("name", MODULES)
def test_problems_change_how_an_event_is_written_and_not_what_it_is_about(name: str) -> None:
    in_order = {"duplicate": 0.0, "late": 0.0}
    for bad, good in zip(make(name, 500, in_order), clean(name, 500), strict=True):
        for field in ("event_id", "event_type", "customer_id", "merchant_id", "amount", "created_at"):
            assert bad[field] == good[field]
        assert bad["provider"].lower() == good["provider"]


@pytest.mark.parametrize("name", MODULES)
def test_clock_moves_at_the_streams_own_rate(name: str) -> None:
    seconds = {"charges": 0.5, "refunds": 2.0, "disputes": 5.0, "subscriptions": 3.0}[name]
    assert stream_of(name).every_seconds == seconds
    moments = [(datetime.fromisoformat(event["created_at"][:-1] + "+00:00") - FIRST_MOMENT) for event in clean(name, 50)]
    assert [moment.total_seconds() for moment in moments] == [seconds * (number + 1) for number in range(50)]


# what is referred to exists


@pytest.mark.parametrize("name", ["refunds", "disputes"])
def test_each_is_of_a_charge_that_was_sent_before(name: str) -> None:
    """Each generator is run for itself, as in a process of its own, for the same span of time."""
    sent = {event["charge_id"]: event for event in generated("charges")}
    own = {"refunds": "refund_id", "disputes": "dispute_id"}[name]
    charge_of: dict[str, str] = {}
    events = generated(name, MANY // IN_PROPORTION[name])
    assert len(events) >= 2_000
    for event in events:
        charge = sent[event["charge_id"]]
        for field in ("customer_id", "merchant_id"):
            assert event[field] == charge[field]
        assert event["provider"].lower() == charge["provider"].lower()
        assert event["currency"] in (charge["currency"].upper(), None)
        assert Decimal("0.00") < event["amount"] <= charge["amount"]
        assert event["metadata"]["original_order_id"] == charge["metadata"]["order_id"]
        assert charge["event_type"] == "charge.succeeded"
        assert charge["created_at"] < event["created_at"]
        assert charge_of.setdefault(event[own], event["charge_id"]) == event["charge_id"]
    assert len(set(charge_of.values())) == len(charge_of), "a charge is refunded or disputed once"


def test_charge_of_a_subscription_is_of_one_that_runs() -> None:
    states: dict[str, list[Row]] = {}
    for event in generated("subscriptions", MANY // IN_PROPORTION["subscriptions"]):
        states.setdefault(event["subscription_id"], []).append(event)
    recurring = [
        event for event in generated("charges") if event["metadata"]["subscription_id"] not in (None, "", "null", "NULL")
    ]
    assert len(recurring) > MANY * 0.2
    for charge in recurring:
        begun = states[charge["metadata"]["subscription_id"]][0]
        assert begun["event_type"] == "subscription.created"
        assert begun["created_at"] < charge["created_at"]
        for field in ("customer_id", "merchant_id"):
            assert charge[field] == begun[field]
        assert charge["currency"].upper() == begun["currency"]


def test_subscription_begins_changes_and_ends() -> None:
    lives: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for event in generated("subscriptions"):
        if event["event_id"] not in seen:
            lives.setdefault(event["subscription_id"], []).append(event)
            seen.add(event["event_id"])
    ended = [life for life in lives.values() if life[-1]["event_type"] == "subscription.canceled"]
    assert len(lives) - len(ended) <= 30
    assert {len(life) for life in ended} >= {2, 3, 4, 6}
    for life in lives.values():
        kinds = [event["event_type"].removeprefix("subscription.") for event in life]
        assert kinds[0] == "created"
        assert set(kinds[1:-1]) <= {"updated"}
        assert life == sorted(life, key=lambda event: event["created_at"]), "late or not, in their order"
        assert len({event["updated_at"] for event in life}) == len(life)
        assert len({(event["customer_id"], event["merchant_id"], event["provider"].lower()) for event in life}) == 1
        for event in life:
            assert (event["canceled_at"] is None) == (event["event_type"] != "subscription.canceled")


def test_dispute_is_opened_defended_and_decided() -> None:
    steps: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for event in generated("disputes"):
        if event["event_id"] not in seen:
            steps.setdefault(event["dispute_id"], []).append(event)
            seen.add(event["event_id"])
    for events in list(steps.values())[:-5]:
        kinds = [event["event_type"].removeprefix("dispute.") for event in events]
        assert kinds in (["created", "updated", "closed"], ["created", "closed"])
        assert events == sorted(events, key=lambda event: event["created_at"])
        words = WORDS[events[0]["provider"].lower()]
        assert events[0]["status"] == words.dispute[0]
        assert events[-1]["status"] in words.decided


# as bad as asked


@pytest.mark.parametrize(("name", "problem"), KINDS)
def test_problem_strikes_as_often_as_its_rate_says(name: str, problem: str) -> None:
    """The events that can carry it do so at a rate of 1; duplicates and late events are a share of all."""
    rate = MODULES[name].PROBLEMS[problem]
    able = MANY if problem in ("duplicate", "late") else counted(name, make(name, MANY // 10, {problem: 1.0}))[problem] * 10
    struck = counted(name, generated(name))[problem]
    spread = 5 * (able * rate * (1 - rate)) ** 0.5 + able * 0.05 * rate + 1
    assert abs(struck - able * rate) < spread, f"{struck} of {able} at {rate}"
    assert struck > 0


@pytest.mark.parametrize(("name", "problem"), KINDS)
def test_problem_comes_alone_and_not_at_all_at_a_rate_of_0(name: str, problem: str) -> None:
    struck = counted(name, clean(name, 1_000, {problem: 0.2}))
    assert set(struck) == {problem}
    assert counted(name, make(name, 1_000, {problem: 0.0}))[problem] == 0


@pytest.mark.parametrize("name", MODULES)
def test_without_problems_all_is_well(name: str) -> None:
    assert counted(name, clean(name, 5_000)) == {}


@pytest.mark.parametrize("name", MODULES)
def test_duplicate_is_an_earlier_event_to_the_letter(name: str) -> None:
    first: dict[str, Row] = {}
    repeated = 0
    for event in generated(name):
        repeated += event["event_id"] in first
        assert first.setdefault(event["event_id"], event) == event
    assert repeated == counted(name, generated(name))["duplicate"]


@pytest.mark.parametrize("name", MODULES)
def test_event_has_no_mark_of_its_problems(name: str) -> None:
    assert {tuple(event) for event in generated(name)} == {tuple(column.name for column in stream_of(name).columns)}


def test_each_kind_of_bad_text_is_there() -> None:
    events = generated("charges")
    codes = Counter(event["failure_code"] for event in events)
    assert codes[None] > codes["null"] > 0
    assert codes["NULL"] > 0
    assert codes[""] > 0
    countries = {event[field] for event in events for field in ("card_country", "billing_country")}
    assert {"342", "999", "ZZ"} <= countries
    currencies = {event["currency"] for event in events}
    assert {"usd", "Usd", "USD", "eur", "EUR", "gbp", "GBP"} <= currencies
    providers = {event["provider"] for event in events}
    assert providers == {*SPELLINGS, *(spelling for spellings in SPELLINGS.values() for spelling in spellings)}


def test_providers_say_the_same_in_their_own_words() -> None:
    statuses: dict[str, set[str]] = {}
    codes: dict[str, set[str]] = {}
    for event in clean("charges", 5_000):
        statuses.setdefault(event["provider"], set()).add(event["status"])
        if event["event_type"] == "charge.failed":
            codes.setdefault(event["provider"], set()).add(event["failure_code"])
        else:
            assert event["failure_code"] is None
    for provider, words in WORDS.items():
        assert statuses[provider] == {word for said in words.charge.values() for word in said}
        assert codes[provider] == {code for code, _ in words.failures}
    assert not codes["stripe"] & codes["braintree"] & codes["adyen"]


def test_unknown_problems_of_another_stream_are_not_given_to_this_one() -> None:
    assert make("refunds", 50, {"null_text": 1.0}) == make("refunds", 50)


# as the raw tables have it


@pytest.mark.parametrize("name", MODULES)
def test_every_event_becomes_a_row_exactly(name: str) -> None:
    stream = stream_of(name)
    events = generated(name)[:5_000]
    values = [encoder_of(stream)(event) for event in events]
    decoded = decode(stream, values)
    assert decoded.bad == {}
    assert decoded.columns["_extra"].null_count == len(events)
    for column in stream.columns:
        landed = decoded.columns[column.name].to_pylist()
        if column.type == DecimalType(10, 2):
            assert [value.as_tuple().exponent for value in landed] == [-2] * len(landed)
            assert landed == [event[column.name] for event in events]
            assert all(re.search(rb'"amount":"\d+\.\d\d"', value) for value in values)
        elif str(column.type) == "timestamp":
            sent = [event[column.name] for event in events]
            assert all(MILLISECONDS.fullmatch(text) for text in sent if text is not None)
            assert [value and value.isoformat(timespec="milliseconds").replace("+00:00", "Z") for value in landed] == sent


def test_tables_have_the_columns_of_the_providers_events() -> None:
    facts = {
        stream.name: (stream.topic, str(stream.table), [str(part) for part in stream.partition_by])
        for stream in payments().streams
    }
    assert facts == {
        name: (f"payment_{name}", f"payments_db.payment_{name}", ["days(created_at)"])
        for name in ("charges", "refunds", "disputes", "subscriptions")
    }
    types = {column.name: str(column.type) for column in stream_of("charges").columns}
    assert len(types) == 28
    assert types["amount"] == "decimal(10,2)"
    assert types["3ds_authenticated"] == "string"
    assert types["metadata"] == "struct<order_id: string, user_email: string, subscription_id: string>"
    for stream in payments().streams:
        shared = {"event_id", "event_type", "provider", "customer_id", "merchant_id", "metadata", "created_at", "updated_at"}
        assert shared <= {column.name for column in stream.columns}


def read(name: str, folder: str) -> list[str]:
    return (payments().folder / folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", MODULES)
def test_sample_becomes_what_is_expected(name: str) -> None:
    stream, sample = stream_of(name), read(name, "sample")
    decoded = decode(stream, [line.encode() for line in sample])
    assert decoded.bad == {}
    columns = {
        column: decoded.columns[column].to_pylist() for column in (*(column.name for column in stream.columns), "_extra")
    }
    rows = [
        {column: as_json(values[index]) for column, values in columns.items()}
        | {
            "kafka_topic": stream.topic,
            "kafka_partition": index % stream.partitions,
            "kafka_offset": index // stream.partitions,
        }
        for index in range(len(sample))
    ]
    assert rows == [json.loads(line) for line in read(name, "expected")]


@pytest.mark.parametrize("name", MODULES)
def test_sample_shows_every_problem_and_refers_to_itself(name: str) -> None:
    events = [json.loads(line) for line in read(name, "sample")]
    shown = set(counted(name, events))
    assert shown >= set(MODULES[name].PROBLEMS) - {"late"}
    known = {json.loads(line)["charge_id"] for line in read("charges", "sample")}
    assert {event["charge_id"] for event in events if "charge_id" in event} <= known


def as_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return str(value)
    return {key: as_json(item) for key, item in value.items()} if isinstance(value, dict) else value
