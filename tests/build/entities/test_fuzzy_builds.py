"""Fuzzy matching in builds, with the real Splink on Spark."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from math import log2
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.app.board import describe
from headrace.app.figures import list_layer_tables
from headrace.build.entities import training
from headrace.build.entities import weights as weights_module
from headrace.build.entities.records import resolve_records, rules_of
from headrace.build.entities.scoring import splink_score
from headrace.build.plan import plan_table
from headrace.errors import HeadraceError
from headrace.iceberg.ledgers.build import BuildLedger, read_build
from headrace.spec.model import layers as layers_module
from headrace.spec.model.matching import ENTITY_COLUMNS
from tests.build.entities.people import STAGED, People, Record, clusters
from tests.build.layer_lake import assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = {
    "a/staged.sql": STAGED,
    "b/entity_index.sql": """/*
kind: entities
keys: [source, source_id]
sequence_by: n
oldest_by: created_at
match:
  email_normalized: {from: email, as: email}
fuzzy:
  compare: {name: name, email: email, phone: phone}
  block_on: [[country], [phone]]
  at_least: 6
*/
SELECT source, source_id, email, phone, name, country, n, created_at FROM pond.staged""",
}
CHANCE = log2(0.0001 / 0.9999)
ALIKE = CHANCE + log2(0.10 / 0.002) + log2(0.12 / 0.0005) + log2(0.08 / 0.0004)
"""A name that is nearly the same, the same mailbox elsewhere, a number with one other digit."""


def test_fuzzy_matches_merge_and_split_entities(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark, TABLES)
    persisted = spark.sparkContext._jsc.getPersistentRDDs().size()
    index = people.send(
        Record("shop", "1", email="ann.lee@old.org", name="Ann  LEE", phone="+1 415 555 2671", day=1),
        Record("crm", "7", email="ann.lee@new.org", name="Änne Lee", phone="+1 415 555 2672", day=2),
        Record("crm", "8", email="bob@new.org", name="Bob Stone", phone="+1 212 555 0000", day=3),
        Record("pay", "5", email="ann.lee@new.com", name="Anne Lee", phone="+1 415 555 2672", country="CA", day=4),
    )
    assert clusters(index) == {frozenset(["shop:1", "crm:7", "pay:5"]), frozenset(["crm:8"])}
    equal = CHANCE + log2(0.80 / 0.004) + log2(0.12 / 0.0005) + log2(0.80 / 0.0001)
    assert {key: float(row["match_confidence"]) for key, row in index.items()} == {
        "shop:1": round(ALIKE, 2),
        "crm:7": round(equal, 2),
        "pay:5": round(equal, 2),
        "crm:8": 100.0,
    }, "pay:5 is in another country, and found by its number"

    index = people.send(Record("pay", "9", email="Ann.Lee@old.org", country=None, day=9))
    assert index["pay:9"]["entity_id"] == index["crm:7"]["entity_id"]
    assert index["shop:1"]["match_confidence"] == index["pay:9"]["match_confidence"] == Decimal("100.00")
    assert float(index["crm:7"]["match_confidence"]) == round(equal, 2)

    index = people.send(Record("crm", "7", email="someone@else.org", name="Someone Else", country="US", n=2))
    assert clusters(index) == {frozenset(["shop:1", "pay:9"]), *(frozenset([key]) for key in ("crm:7", "crm:8", "pay:5"))}
    assert {row["match_confidence"] for row in index.values()} == {Decimal("100.00")}
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == persisted, "Splink leaves nothing in memory"


def test_small_builds_a_big_one_and_a_full_refresh_agree_on_what_is_alike(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = Random(5)
    records = [
        Record(
            random.choice(("shop", "pay", "crm")),
            str(random.randrange(6)),
            email=random.choice((None, "a.lee@b.org", "a.lee@c.org", "jo@d.org")),
            phone=random.choice((None, "+14155552671", "+14155552672", "+12125550000")),
            name=random.choice((None, "Ann Lee", "Anne Lee", "Jo Stone", "Joe Stone")),
            country=random.choice(("US", "CA")),
            op=random.choice("uuud"),
            n=number,
            day=random.randrange(9),
        )
        for number in range(36)
    ]
    small = People(tmp_path_factory.mktemp("small"), spark, TABLES)
    for start in range(0, 36, 12):
        small.send(*records[start : start + 12])
    by_small_builds = small.all_rows()
    small.build(full_refresh=True)
    assert_same(small.all_rows(), by_small_builds)
    random.shuffle(records)
    big = People(tmp_path_factory.mktemp("big"), spark, TABLES)
    big.send(*records)
    left, right = small.index(), big.index()
    assert clusters(left) == clusters(right)
    sure = {key: row["match_confidence"] for key, row in left.items()}
    assert sure == {key: row["match_confidence"] for key, row in right.items()}
    assert {confidence == 100 for confidence in sure.values()} == {True, False}


def test_build_without_splink_names_the_package(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people = People(tmp_path, spark, TABLES)
    monkeypatch.setattr(layers_module, "has_splink", lambda: False)
    people.land([Record("shop", "1", name="Ann")])
    with pytest.raises(HeadraceError) as caught:
        people.build()
    assert "pip install 'headrace[fuzzy]'" in str(caught.value)


def test_incomparable_columns_are_named(spark: SparkSession, tmp_path: Path) -> None:
    index = TABLES["b/entity_index.sql"].replace("{name: name,", "{n: name, name: name,")
    with pytest.raises(HeadraceError, match='"n" is of type int, which can\'t be compared as name'):
        People(tmp_path, spark, {**TABLES, "b/entity_index.sql": index})


def test_table_can_become_fuzzy_later(spark: SparkSession, tmp_path: Path) -> None:
    fuzzy = TABLES["b/entity_index.sql"]
    start, end = fuzzy.index("fuzzy:"), fuzzy.index("*/")
    exact = (fuzzy[:start] + fuzzy[end:]).replace("email, phone, name, country,", "email,")
    people = People(tmp_path, spark, {**TABLES, "b/entity_index.sql": exact})
    before = people.send(
        Record("shop", "1", email="ann.lee@old.org", name="Ann Lee", phone="+1 415 555 2671", day=1),
        Record("crm", "7", email="ann.lee@new.org", name="Anne Lee", phone="+1 415 555 2672", day=2),
    )
    assert len(clusters(before)) == 2
    (tmp_path / "pipelines/pond/b/entity_index.sql").write_text(fuzzy, encoding="utf-8")
    people.reload()
    people.build()
    index = people.index()
    assert {row["entity_id"] for row in index.values()} == {before["shop:1"]["entity_id"]}
    assert index["crm:7"]["previous_entity_ids"] == [before["crm:7"]["entity_id"]]
    assert {float(row["match_confidence"]) for row in index.values()} == {round(ALIKE, 2)}


TRAINED = {
    **TABLES,
    "b/entity_index.sql": TABLES["b/entity_index.sql"].replace("  at_least: 6\n", "  at_least: 6\n  train: {seed: 3}\n"),
}
NAMES = ("Ann Lee", "Bob Stone", "Cleo Okafor", "Dan Silva", "Eva Novak", "Finn Meyer", "Gita Rossi", "Hugo Haddad")


def person_records(start: int, count: int) -> list[Record]:
    """Return records of persons that two or three sources know, some with another spelling and another mailbox."""
    random = Random(start)
    records = []
    for number in range(start, start + count):
        name = f"{random.choice(NAMES)}{number % 7}"
        for source in random.sample(("shop", "pay", "crm"), random.choice((1, 2, 2, 3))):
            spelled = name if random.random() < 0.8 else name.replace("e", "a", 1)
            email = f"{name.split()[0].lower()}.{number}@{random.choice(('a.org', 'b.org'))}"
            phone = f"+1 415 555 {2000 + number}" if random.random() < 0.9 else None
            records.append(
                Record(source, str(number), email=email, phone=phone, name=spelled, country=random.choice(("US", "CA")))
            )
    return records


def test_trained_weights_are_kept_until_a_full_refresh(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (weights_module, training):
        monkeypatch.setattr(module, "LEAST_RECORDS", 100)
    people = People(tmp_path, spark, TRAINED)

    def entry() -> BuildLedger:
        return read_build(people.catalog.load_table("pond.entity_index"))

    people.send(*person_records(0, 5))
    assert (first := entry().weights) is not None
    assert (first.version, first.columns) == (1, ()), "too few to train of"
    people.send(*person_records(5, 150))
    assert entry().weights == first
    table = next(candidate for candidate in people.lake.pipeline.tables if candidate.table.name == "entity_index")
    plan = plan_table(people.catalog, people.lake.pipeline, table)
    assert plan.why == (f"its {len(people.index()):,} records are enough to train weights",)
    people.build()
    trained = entry().weights
    assert trained is not None
    assert (trained.version, trained.records) == (3, len(people.index()))
    assert trained.columns

    index = people.send(*person_records(155, 20))
    assert entry().weights == trained, "an increment compares with the weights that are stored"
    rows = pl.DataFrame(people.catalog.load_table("pond.entity_index").scan().to_arrow())
    rules = rules_of(table, score=splink_score(table, spark=spark, stored=trained))
    whole = resolve_records(rows.drop(*ENTITY_COLUMNS), rows.clear(), rules)
    by_key = {f"{row['source']}:{row['source_id']}": row for row in whole.iter_rows(named=True)}
    assert clusters(by_key) == clusters(index), "an increment gives what a full build gives with the same weights"
    assert {key: row["match_confidence"] for key, row in by_key.items()} == {
        key: row["match_confidence"] for key, row in index.items()
    }

    people.build(full_refresh=True)
    again = entry().weights
    assert again is not None
    assert (again.version, again.records) == (5, len(index))


def test_large_entity_logs_a_warning(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = TABLES["b/entity_index.sql"].replace("fuzzy:", "largest_entity: 3\nfuzzy:")
    people = People(tmp_path, spark, {**TABLES, "b/entity_index.sql": index})
    people.send(*(Record("shop", str(number), email="same@a.org") for number in range(3)))
    people.land([Record("crm", "9", email="same@a.org", day=9)])
    outcomes = people.build()
    said = [sentence for outcome in outcomes for sentence in describe(outcome, only_trouble=True)]
    assert len(said) == 1
    assert said[0].startswith("pond.entity_index: warning: one entity has 4 records, more than largest_entity: 3.")
    assert "build 2 has an entity of 4 records" in caplog.text
    status = list_layer_tables(people.catalog, people.lake.pipeline, now=datetime.now(timezone.utc))
    assert [
        (table_status.largest_entity, table_status.largest_expected)
        for table_status in status
        if table_status.kind == "entities"
    ] == [(4, 3)]
