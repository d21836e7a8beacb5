"""What the tests of serving share: a lake, an application on it, and one Postgres for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from headrace.services.postgres import start_postgres, stop_postgres
from headrace.serving.app import make_app
from headrace.serving.guard import Lock
from headrace.serving.pages import load_pages
from headrace.settings import Settings, load_settings
from tests.serving.shop_lake import ShopLake
from tests.serving.weather_table import PAGES, empty

OPEN = Lock(None, local=True)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[ShopLake]:
    lake = ShopLake(tmp_path)
    yield lake
    lake.watch.close()


@pytest.fixture
def client(shop: ShopLake) -> Iterator[TestClient]:
    with TestClient(make_app(shop.room, OPEN), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="session")
def postgres_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of the Postgres that all tests of serving share, started."""
    environ = {"HEADRACE_POSTGRES_PASSWORD": "only for tests"}
    settings = load_settings(flags={}, environ=environ, folder=tmp_path_factory.mktemp("postgres"))
    start_postgres(settings, detached=False, report=lambda sentence: None)
    yield settings
    stop_postgres(settings)


@pytest.fixture
def dsn(postgres_home: Settings) -> str:
    """The connection string of a Postgres whose weather is empty."""
    found = start_postgres(postgres_home, detached=False, report=lambda sentence: None).dsn
    empty(found)
    return found


@pytest.fixture
def make_weather_app(shop: ShopLake) -> Callable[..., FastAPI]:
    """Makes an application with weather's pages, which asks where Postgres is."""

    def make(conninfo: Callable[[], str | None], *, lock: Lock = OPEN) -> FastAPI:
        return make_app(replace(shop.room, postgres=conninfo), lock, own_pages=[load_pages("weather", PAGES)])

    return make
