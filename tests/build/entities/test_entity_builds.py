"""Entity builds: entities grow, merge, split and keep their ids, and equal a single build of all records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.build import build as build_module
from headrace.build import keeping
from headrace.build.entities import build as entity_build
from tests.build.entities.people import SCHEMA, TABLES, People, Record, clusters
from tests.build.layer_lake import assert_same
from tests.support.crashing import KilledError, die_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_entity_grows_merges_and_splits(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark)
    index = people.send(
        Record("shop", "1", email="Ann.Lee+news@gmail.com", day=2),
        Record("crm", "7", phone="(415) 555-2671", day=5),
        Record("pay", "x", email="someone@else.org", day=1),
    )
    assert clusters(index) == {frozenset(["shop:1"]), frozenset(["crm:7"]), frozenset(["pay:x"])}
    assert (index["shop:1"]["email_normalized"], index["crm:7"]["phone_normalized"]) == ("annlee@gmail.com", "+14155552671")
    shop, crm = index["shop:1"]["entity_id"], index["crm:7"]["entity_id"]

    index = people.send(Record("pay", "9", email="annlee@gmail.com", day=1))
    assert index["pay:9"]["entity_id"] == index["shop:1"]["entity_id"] == shop

    index = people.send(Record("crm", "8", email="ANNLEE@gmail.com", phone="+1 415 555 2671", day=9))
    assert {index[key]["entity_id"] for key in ("shop:1", "pay:9", "crm:7", "crm:8")} == {shop}
    assert (index["crm:7"]["previous_entity_ids"], index["crm:8"]["previous_entity_ids"]) == ([crm], [])

    index = people.send(Record("crm", "8", op="d", n=2))
    assert clusters(index) == {frozenset(["shop:1", "pay:9"]), frozenset(["crm:7"]), frozenset(["pay:x"])}
    assert (index["shop:1"]["entity_id"], index["crm:7"]["entity_id"]) == (shop, crm)

    by_increments = people.all_rows()
    people.build(full_refresh=True)
    assert_same(people.all_rows(), by_increments)


def test_shared_value_is_unused_over_its_limit(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark, {name: TABLES[name] for name in ("a/staged.sql", "b/entity_index.sql")})
    phones = [Record("shop", str(number), phone="+1 415 555 2671", day=number) for number in range(5)]
    index = people.send(*phones[:3])
    assert len(clusters(index)) == 1
    first = index["shop:0"]["entity_id"]
    index = people.send(*phones[3:])
    assert len(clusters(index)) == 5
    assert index["shop:0"]["entity_id"] == first
    assert {tuple(row["unused_matches"]) for row in index.values()} == {("phone_normalized",)}
    people.land([Record("shop", "6", phone="415 555 2671", name="one more")])
    built = {outcome.table.table.name: outcome.built for outcome in people.build()}["entity_index"]
    assert built is not None
    assert (built.rows, built.gone) == (1, 0), "what stays over the limit touches nobody"
    index = people.send(*(Record("shop", number, op="d", n=2) for number in ("3", "4", "6")))
    assert clusters(index) == {frozenset(["shop:0", "shop:1", "shop:2"])}
    assert {row["entity_id"] for row in index.values()} == {first}
    assert all(row["unused_matches"] == [] for row in index.values())


def test_late_version_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark, {"b/direct_index.sql": TABLES["b/direct_index.sql"]})
    people.land([Record("shop", "1", email="new@b.org", n=2), Record("pay", "1", email="old@b.org")])
    people.build()
    before = people.rows("direct_index")
    people.land([Record("shop", "1", email="old@b.org", n=1)])
    people.build()
    assert people.rows("direct_index") == before
    people.land([Record("shop", "1", email="old@b.org", n=3), Record("shop", "1", email="older@b.org", n=2)])
    people.build()
    assert clusters(people.index("direct_index")) == {frozenset(["shop:1", "pay:1"])}


def test_crashed_build_recovers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = die_in(monkeypatch, build_module, keeping)
    monkeypatch.setattr(entity_build, "MOST_DELETED", 1.0)
    people = People(tmp_path, spark)
    people.send(Record("shop", "1", email="a@b.org"), Record("crm", "1", phone="+14155552671", day=2))
    for number, place in enumerate(("kept", "staged", "committed"), start=3):
        people.land([Record("crm", "2", email="a@b.org" if number % 2 else None, phone="+14155552671", n=number)])
        people.build("staged")
        places[:] = [f"pond.entity_index:{place}"]
        with pytest.raises(KilledError):
            people.build("entity_index")
    people.build()
    recovered = people.all_rows()
    people.build(full_refresh=True)
    assert_same(people.all_rows(), recovered)
    assert len(clusters(people.index())) == 1


@pytest.mark.parametrize("reopens", [True, False])
def test_columns_are_added_and_widened(reopens: bool, spark: SparkSession, tmp_path: Path) -> None:
    """Also where the rows of before are still in memory, with the types that they had."""
    hidden = "_extra, kafka_topic, kafka_partition, kafka_offset, kafka_timestamp, checkpoint_id"
    table = f"{TABLES['b/direct_index.sql'].split('SELECT')[0]}SELECT * EXCEPT ({hidden}) FROM pond.events"
    people = People(tmp_path, spark, {"b/entity_index.sql": table})
    people.send(Record("shop", "1", email="a@b.org"), Record("crm", "1", email="c@b.org", day=2))
    read_files = people.lake.read_files
    home = people.folder / "pipelines/pond"
    (home / "schemas/event.sql").write_text(f"{SCHEMA.replace('n INT', 'n LONG')}, note STRING", encoding="utf-8")
    people.reload()
    if not reopens:
        people.lake = replace(people.lake, read_files=read_files)
    people.send(Record("crm", "2", email="a@b.org", n=2**40, day=3))
    people.send(Record("crm", "1", email="a@b.org", n=2**41, day=3))
    index = people.send(Record("shop", "1", email="c@b.org", n=2**41))
    assert clusters(index) == {frozenset(["crm:1", "crm:2"]), frozenset(["shop:1"])}


def records_of(random: Random, count: int) -> list[Record]:
    """Return versions of few records that share few values, out of order, some of them deletions."""
    return [
        Record(
            random.choice(("shop", "pay", "crm")),
            str(random.randrange(4)),
            email=random.choice((None, "a@b.org", "A+x@b.org", "c@d.org", "e@f.org")),
            phone=random.choice((None, "+14155552671", "415 555 2671", "+14155552672", "nonsense")),
            op=random.choice("uuud"),
            n=random.randrange(count),
            day=random.randrange(9),
        )
        for _ in range(count)
    ]


@given(seed=st.integers(0, 2**32))
@hypothesis_settings(
    max_examples=2, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck), deadline=None
)
def test_small_builds_a_big_one_and_a_full_refresh_agree(
    seed: int, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_build, "MOST_DELETED", 1.0)
    random = Random(seed)
    records = records_of(random, 30)
    small = People(tmp_path_factory.mktemp("small"), spark)
    for start in range(0, 30, 10):
        small.send(*records[start : start + 10])
    by_small_builds = small.all_rows()
    small.build(full_refresh=True)
    assert_same(small.all_rows(), by_small_builds)
    random.shuffle(records)
    big = People(tmp_path_factory.mktemp("big"), spark)
    big.send(*records)
    for table in ("entity_index", "direct_index"):
        left, right = small.index(table), big.index(table)
        assert clusters(left) == clusters(right)
        for key, row in left.items():
            ours = {name: value for name, value in row.items() if name not in ("entity_id", "previous_entity_ids", "_build_id")}
            assert ours.items() <= right[key].items()
