"""`headrace verify` finds what differs in Postgres, and `headrace publish` repairs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.serving.price_list import PriceList, ask

pytestmark = pytest.mark.services


def test_verify_names_rows_that_differ_and_publish_repairs_them(
    here: Here, tmp_path: Path, broker: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = PriceList(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("HEADRACE_POSTGRES_URL", database)
    prices.land_nothing()
    prices.build({"a": ("1.10", "red"), "b": ("2.20", "blue")})
    code, output = here("verify", "shop")
    assert (code, "not found in Postgres: table prices" in output) == (1, True)
    code, output = here("publish", "shop")
    assert (code, "2 rows to Postgres table prices" in output) == (0, True)
    assert here("publish", "shop")[1].strip() == "Postgres is up to date"
    assert here("verify", "shop")[0] == 0
    ask(database, "UPDATE prices SET price = 9 WHERE id = 'b'")
    code, output = here("verify", "shop")
    assert code == 1
    assert "prices: id b: price" in output
    assert "Publish it again: headrace publish shop --table prices --full" in output
    code, output = here("verify", "shop", "--json")
    (table,) = [comparison for comparison in json.loads(output) if comparison.get("table") == "shop.prices"]
    assert (code, table["rows"], table["different"], table["holds"]) == (1, 2, 1, False)
    code, output = here("publish", "shop", "--table", "prices", "--full")
    assert (code, "1 row to Postgres table prices" in output) == (0, True)
    code, output = here("publish", "shop", "--full")
    assert (code, "Postgres table prices already has the lake's rows" in output, "0 rows" in output) == (0, True, False)
    assert here("verify", "shop")[0] == 0


def test_publish_names_the_tables_that_can_be_published(here: Here, tmp_path: Path) -> None:
    PriceList(tmp_path)
    code, output = here("publish", "shop", "--table", "price")
    assert (code, 'not found: published table "price"' in output, "prices" in output) == (2, True, True)
    code, output = here("publish", "lineage")
    assert (code, "lineage publishes nothing" in output) == (0, True)
