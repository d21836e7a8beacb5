"""The table that weather's averages are published to, and rows for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import psycopg

from headrace.spec.folders import BUILT_IN

PAGES = BUILT_IN / "weather" / "serving" / "pages.py"
DDL = """
CREATE TABLE IF NOT EXISTS weather (
    city VARCHAR(255) NOT NULL,
    avg_temperature DOUBLE PRECISION,
    window_start TIMESTAMP,
    window_end TIMESTAMP,
    record_count BIGINT,
    last_updated TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (city, window_start)
)
"""
_UPSERT = """
INSERT INTO weather VALUES (%s, %s, %s, %s, 1, %s)
ON CONFLICT (city, window_start) DO UPDATE SET avg_temperature = excluded.avg_temperature, last_updated = excluded.last_updated
"""


def this_minute(minutes_ago: int = 0) -> datetime:
    """Gives back the beginning of a minute as the table has it: UTC, without a zone."""
    now = datetime.now(timezone.utc).replace(second=0, microsecond=0, tzinfo=None)
    return now - timedelta(minutes=minutes_ago)


def publish(dsn: str, rows: Iterable[tuple[str, datetime, float | None]]) -> None:
    """Publishes averages by city and the beginning of their minute."""
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    with psycopg.connect(dsn) as connection:
        connection.execute(DDL)
        values = [(city, average, start, start + timedelta(minutes=1), now) for city, start, average in rows]
        if values:
            connection.cursor().executemany(_UPSERT, values)


def empty(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(DDL)
        connection.execute("TRUNCATE weather")
