"""Entities through builds: they grow, merge and split, keep their ids, and end as if all records had come at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.layers.entities.people import People, Record, clusters
from tests.layers.pond import assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_an_entity_grows_merges_and_splits(spark: SparkSession, tmp_path: Path) -> None:
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

    found = people.all_rows()
    people.build(full_refresh=True)
    assert_same(people.all_rows(), found)
