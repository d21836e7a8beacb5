"""The JSON API of the weather dashboard, compared with its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from headrace.serving.web.pages import load_pages
from headrace.spec import copy_pipeline, load_pipeline
from tests.serving.weather_table import publish

pytestmark = pytest.mark.services

FIRST = datetime(2026, 1, 8, 14, 30)


@pytest.fixture
def weather(dsn: str, make_weather_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    with TestClient(make_weather_app(lambda: dsn), base_url="http://127.0.0.1") as client:
        yield client


def test_all_averages_by_city(dsn: str, weather: TestClient) -> None:
    assert weather.get("/api/weather").json() == {"cities": [], "data": {}}
    minute = timedelta(minutes=1)
    publish(dsn, [("New York", FIRST + minute, 71.25), ("New York", FIRST, 72.5), ("Aachen", FIRST, 50.0)])
    publish(dsn, [("San Francisco", FIRST, None), ("Boston", FIRST, float("nan"))])
    assert weather.get("/api/weather").json() == {
        "cities": ["San Francisco", "New York", "Boston", "Aachen"],
        "data": {
            "San Francisco": [{"time": "2026-01-08T14:30:00.000Z", "temperature": None}],
            "New York": [
                {"time": "2026-01-08T14:30:00.000Z", "temperature": 72.5},
                {"time": "2026-01-08T14:31:00.000Z", "temperature": 71.25},
            ],
            "Boston": [{"time": "2026-01-08T14:30:00.000Z", "temperature": None}],
            "Aachen": [{"time": "2026-01-08T14:30:00.000Z", "temperature": 50.0}],
        },
    }


def test_averages_changed_since_a_time(dsn: str, weather: TestClient) -> None:
    def since(moment: str) -> dict[str, list[str]]:
        data = weather.get("/api/weather/latest", params={"since": moment}).json()["data"]
        return {city: [point["time"] for point in points] for city, points in data.items()}

    publish(dsn, [("Miami", FIRST, 80.0), ("Miami", FIRST + timedelta(minutes=1), 81.0)])
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE weather SET last_updated = %s", (FIRST,))
    assert since("2026-01-08T14:31:00.000Z") == {"Miami": ["2026-01-08T14:31:00.000Z"]}, "the minute that is still open too"
    assert since("2026-01-08T15:31:00+01:00") == {"Miami": ["2026-01-08T14:31:00.000Z"]}
    assert since("2026-01-08T14:31:00") == {"Miami": ["2026-01-08T14:31:00.000Z"]}, "UTC where it has no zone"
    assert since("2026-01-08T14:32:00Z") == {}
    publish(dsn, [("Miami", FIRST, 79.0)])
    assert since("2026-01-08T14:32:00Z") == {"Miami": ["2026-01-08T14:30:00.000Z"]}, "a late reading changed it just now"


@pytest.mark.parametrize("query", ["", "?since=", "?since=yesterday", "?since=0001-01-01T00:00:00%2B10:00", "?since=1e400"])
def test_invalid_since_is_refused(weather: TestClient, query: str) -> None:
    assert weather.get(f"/api/weather/latest{query}").status_code == 422


def test_before_the_first_average(dsn: str, weather: TestClient) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE weather")
    assert weather.get("/api/weather").json() == {"cities": [], "data": {}}


def test_weather_api_reports_a_missing_postgres(make_weather_app: Callable[..., FastAPI]) -> None:
    unreachable = "host=127.0.0.1 port=1 user=nobody dbname=nothing connect_timeout=1"
    for conninfo, what in ((None, "Postgres is not running"), (unreachable, "Postgres does not answer")):
        with TestClient(make_weather_app(lambda conninfo=conninfo: conninfo), base_url="http://127.0.0.1") as client:
            answer = client.get("/api/weather")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert answer.json()["what"] == what
            assert client.get("/health").json() == {"status": "healthy"}


def test_connections_are_read_only(dsn: str, make_weather_app: Callable[..., FastAPI]) -> None:
    readers = make_weather_app(lambda: dsn).state.readers
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), readers.connection() as connection:
        connection.execute("DELETE FROM weather")
    readers.close()


def test_copy_of_the_pipeline_has_pages_of_its_own(tmp_path: Path) -> None:
    path = copy_pipeline("weather", target_name="mine", folder=tmp_path)
    copied = load_pipeline("mine", environ={}, folder=tmp_path)
    assert copied.serving.pages == path / "serving" / "pages.py"
    pages = load_pages(copied, copied.serving.pages)
    assert pages.home == "/mine"
    paths = {route.path for route in pages.router.routes if isinstance(route, APIRoute)}
    assert paths == {"/mine", "/api/mine", "/api/mine/latest"}
