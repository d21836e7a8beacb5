"""The table that weather's averages are published to, and rows for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import psycopg

from headrace.serving.web.pages import OwnPages, load_pages
from headrace.spec import load_pipeline
from headrace.spec.loading.folders import BUILT_IN

WEATHER = load_pipeline("weather", environ={}, folder=BUILT_IN)
_DDL = WEATHER.serving.postgres[0].ddl.encode()
_UPSERT = """
INSERT INTO weather VALUES (%s, %s, %s, %s, 1, %s)
ON CONFLICT (city, window_start) DO UPDATE SET avg_temperature = excluded.avg_temperature, last_updated = excluded.last_updated
"""


def weather_pages() -> OwnPages:
    path = WEATHER.serving.pages
    assert path
    return load_pages(WEATHER, path)


def this_minute(minutes_ago: int = 0) -> datetime:
    """Return the start of the current minute in the table's format: UTC without a zone."""
    now = datetime.now(timezone.utc).replace(second=0, microsecond=0, tzinfo=None)
    return now - timedelta(minutes=minutes_ago)


def publish(dsn: str, rows: Iterable[tuple[str, datetime, float | None]]) -> None:
    """Publish averages by city and the beginning of their minute."""
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with psycopg.connect(dsn) as connection:
        connection.execute(_DDL)
        values = [(city, average, start, start + timedelta(minutes=1), now) for city, start, average in rows]
        if values:
            connection.cursor().executemany(_UPSERT, values)


def empty(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(_DDL)
        connection.execute("TRUNCATE weather")
