"""Storefront's seeder on a real Postgres: the same seed gives the same rows, and traffic covers every action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timezone
from random import Random

import psycopg
import pytest
from fastapi.testclient import TestClient

from headrace.sources.seeding import seeding_app
from headrace.spec.loading.folders import BUILT_IN
from headrace.spec.loading.modules import load_module
from headrace.spec.model.pipeline import Capture, Pipeline, Seeder
from tests.support.waiting import wait_until

pytestmark = pytest.mark.services

FOLDER = BUILT_IN / "storefront"
SMALL = {"customers": 40, "products": 20, "orders": 60}
TABLES = (
    "customers",
    "addresses",
    "categories",
    "products",
    "promotions",
    "orders",
    "order_items",
    "payments",
    "shipments",
    "reviews",
)


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database) as connection:
        connection.execute((FOLDER / "migrations" / "V1_0__create_storefront.sql").read_bytes())
    return database


@pytest.fixture
def client(shop: str) -> Iterator[TestClient]:
    capture = Capture("storefront", FOLDER, seeder=Seeder(FOLDER / "sources" / "seeder.py", 8000))
    pipeline = Pipeline("storefront", "a shop", FOLDER, (), capture=capture)
    with TestClient(seeding_app(pipeline, dsn=shop), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def contents(dsn: str) -> dict[str, str]:
    """Return a hash of every table's rows."""
    with psycopg.connect(dsn) as connection:
        queries = {
            table: f"SELECT md5(string_agg(each::text, '|' ORDER BY each::text)) FROM {table} AS each" for table in TABLES
        }
        return {table: connection.execute(query.encode()).fetchone()[0] for table, query in queries.items()}  # type: ignore[index]


def test_seed_full_is_reproducible(client: TestClient, shop: str) -> None:
    filled = client.post("/seed/full", params={**SMALL, "seed": 7})
    assert filled.status_code == 200, filled.text
    counted = filled.json()["rows"]
    assert counted["customers"] == 40
    assert counted["orders"] == 60
    assert set(counted) == set(TABLES)
    assert all(counted.values())
    first = contents(shop)

    again = client.post("/seed/full", params={**SMALL, "seed": 7})
    assert again.status_code == 409
    assert "replace=true" in again.json()["message"]
    assert contents(shop) == first

    assert client.post("/seed/full", params={**SMALL, "seed": 7, "replace": True}).json()["rows"] == counted
    assert contents(shop) == first
    assert client.post("/seed/full", params={**SMALL, "seed": 8, "replace": True}).status_code == 200
    assert contents(shop)["customers"] != first["customers"]


def test_traffic_continues_during_schema_changes(shop: str) -> None:
    seeder = load_module(FOLDER / "sources" / "seeder.py")
    random, done, changes = Random(3), Counter[str](), []
    with psycopg.connect(shop, autocommit=True) as connection:
        with connection.transaction():
            seeder.seed(connection, random, date(2026, 3, 1), **SMALL)
        for number in range(1_500):
            name = "rolled back"
            with connection.transaction():
                name = seeder.act(connection, random, datetime(2026, 3, 1, tzinfo=timezone.utc))
            done[name] += 1
            if number % 100 == 99:
                with connection.transaction():
                    changes.append(seeder.change_schema(connection))
        largest = connection.execute("SELECT max(length(body)) FROM reviews").fetchone()
        wide = connection.execute("SELECT max(quantity) FROM order_items").fetchone()
    assert [change for change in changes if change] == changes[:5]
    assert set(seeder._ACTS) == {act for act in seeder._ACTS if done[act.__name__] or act.__name__ == "abandon"}
    assert done["rolled back"]
    assert largest is not None
    assert largest[0] == 1_000_000
    assert wide is not None
    assert wide[0] > 2**31


def wait_for_commits(client: TestClient, count: int) -> None:
    wait_until(lambda: client.get("/traffic/status").json()["committed"] >= count, what=f"{count} transactions", seconds=60)


def test_traffic_is_started_inspected_and_stopped(client: TestClient) -> None:
    assert client.get("/traffic/status").json()["running"] is False
    client.post("/seed/full", params=SMALL)
    assert client.post("/traffic/start", params={"rate": 500, "seed": 1}).json()["running"]
    assert client.post("/traffic/start").status_code == 409
    wait_for_commits(client, 20)
    changed = client.post("/schema/change")
    assert changed.json() == {"change": "ALTER TABLE customers ADD COLUMN phone text"}
    stopped = client.post("/traffic/stop").json()
    assert not stopped["running"]
    assert stopped["failed"] == 0, stopped["last_error"]
    assert stopped["committed"] == sum(stopped["acts"].values()) >= 20
    assert client.get("/traffic/status").json() == stopped
    for _ in range(4):
        assert client.post("/schema/change").status_code == 200
    assert client.post("/schema/change").status_code == 409


def test_traffic_survives_a_lost_connection(client: TestClient, shop: str) -> None:
    client.post("/seed/full", params=SMALL)
    client.post("/traffic/start", params={"rate": 500})
    with psycopg.connect(shop, autocommit=True) as connection:
        wait_for_commits(client, 10)
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    before = client.get("/traffic/status").json()["committed"]
    wait_for_commits(client, before + 10)
    stopped = client.post("/traffic/stop").json()
    assert stopped["committed"] >= before + 10
    assert stopped["failed"] >= 1


def test_seeder_explains_errors_and_serves_its_docs(client: TestClient, shop: str) -> None:
    assert client.get("/health").json() == {"status": "healthy"}
    assert client.post("/seed/full", params={"customers": -1}).status_code == 422
    assert client.post("/traffic/start", params={"rate": 0}).status_code == 422
    page = client.get("/docs")
    assert page.status_code == 200
    assert "http" not in page.text.replace("http-equiv", ""), "nothing comes from elsewhere"
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/seed/full",
        "/traffic/start",
        "/traffic/stop",
        "/traffic/status",
        "/schema/change",
        "/health",
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example", "Content-Type": "text/plain"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Host": "evil.example"}, 421),
    ],
)
def test_seeder_refuses_requests_of_other_sites(client: TestClient, shop: str, headers: dict[str, str], status: int) -> None:
    def columns() -> int:
        with psycopg.connect(shop) as connection:
            row = connection.execute("SELECT count(*) FROM information_schema.columns").fetchone()
        assert row is not None
        return int(row[0])

    before = columns()
    for path in ("/schema/change", "/seed/full", "/traffic/start"):
        assert client.post(path, headers=headers).status_code == status
    assert columns() == before
    assert client.post("/schema/change").status_code == 200
    assert columns() > before
