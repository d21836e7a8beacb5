"""The lake is the database: every row and column, whoever is killed in the middle of traffic, and while tables change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.captured import PARTS, CapturedShop
from tests.support.application import start_headrace
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.services, pytest.mark.long]

TABLES = 10


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[CapturedShop]:
    captured_shop = CapturedShop(tmp_path)
    yield captured_shop
    captured_shop.close()


def test_lake_is_the_database_whoever_is_killed(shop: CapturedShop) -> None:
    filled = shop.open(rate=40, seed=7, customers=100, products=40, orders=200)
    assert len(filled) == TABLES
    for part in PARTS:
        before = shop.committed()
        shop.kill(part)
        shop.post("schema/change")
        wait_until(lambda before=before: shop.committed() > before + 40, what="traffic to go on", seconds=60)  # type: ignore[misc]
    played = shop.post("traffic/stop")
    assert played["committed"] > 300
    assert {"order", "advance", "change_customer", "use_changes"} <= played["acts"].keys()
    verified = shop.verify()
    tables = [entry for entry in verified if "source" in entry]
    assert [entry for entry in verified if not entry["holds"]] == []
    assert len(tables) == TABLES
    assert sum(table["rows"] for table in tables) > sum(filled.values()) / 2
    assert all(table["different"] == 0 for table in tables)


def test_row_changed_by_hand_is_seen_in_the_demo(shop: CapturedShop) -> None:
    demo = start_headrace("demo", "storefront", "--exit", environ=shop.environ, folder=shop.folder)
    assert demo.wait(seconds=900) == 0, demo.said()
    said = demo.said()
    assert "in 10 tables of Postgres" in said
    assert "headrace psql storefront -c" in said
    assert "UPDATE 1" in said
    assert re.search(r"The lake had the change \d+\.\d s after psql", said), said
