"""Fixtures for the tests of serving: a lake, and an application on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from headrace.serving.web.app import make_app
from headrace.serving.web.guard import Lock
from tests.serving.played_topics import PlayedTopics
from tests.serving.shop_lake import ShopLake
from tests.serving.weather_table import empty, weather_pages

OPEN = Lock(None, local=True)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[ShopLake]:
    lake = ShopLake(tmp_path)
    yield lake
    lake.watch.close()


@pytest.fixture
def client(shop: ShopLake) -> Iterator[TestClient]:
    with TestClient(make_app(shop.context, OPEN), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def dsn(database: str) -> str:
    """The connection string of a database whose weather is empty."""
    empty(database)
    return database


@pytest.fixture
def topics() -> PlayedTopics:
    return PlayedTopics()


@pytest.fixture
def make_weather_app(shop: ShopLake, topics: PlayedTopics) -> Callable[..., FastAPI]:
    """Return a function that makes an application with weather's pages, a given Postgres and fake topics."""

    def make(conninfo: Callable[[], str | None], *, lock: Lock = OPEN) -> FastAPI:
        return make_app(replace(shop.context, postgres=conninfo, topics=topics), lock, own_pages=[weather_pages()])

    return make
