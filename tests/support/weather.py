"""Readings of the weather pipeline for tests, and what their minutes must be, computed without an engine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from random import Random
from typing import Any

import psycopg

from tests.support.lake import Lake

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
CITIES = ("San Francisco", "New York", "Denver", "<b>Miami</b>")
Minutes = dict[tuple[str, datetime], tuple[datetime, float | None, int]]


def readings(count: int, *, seed: int, at: datetime = START, late: float = 0.2) -> list[bytes]:
    """Return messages over ten minutes, a share of them hours late, in no order."""
    random = Random(seed)
    values = []
    for _ in range(count):
        moment = at + timedelta(milliseconds=random.randrange(600_000))
        if random.random() < late:
            moment -= timedelta(minutes=random.randrange(15, 180))
        reading = {
            "city": random.choice(CITIES),
            "temperature": f"{random.uniform(-20, 110):.{random.randrange(5)}f}",
            "ts": moment.strftime("%Y-%m-%d-%H"),
            "event_time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        values.append(json.dumps(reading).encode())
    return values


def recompute(lake: Lake, raw: str = "default.weather") -> Minutes:
    """Return every minute as the raw table has it now: a batch over all its rows, in plain Python."""
    return minutes_of(lake.rows(raw, "city", "temperature", "event_time", "kafka_timestamp"))


def minutes_of(rows: Iterable[Mapping[str, Any]]) -> Minutes:
    temperatures: dict[tuple[str, datetime], list[Decimal | None]] = defaultdict(list)
    for row in rows:
        moment: datetime = row["event_time"] or row["kafka_timestamp"]
        start = moment.astimezone(timezone.utc).replace(second=0, microsecond=0, tzinfo=None)
        city = " ".join(word[:1].upper() + word[1:].lower() for word in row["city"].split())
        temperatures[city, start].append(_number(row["temperature"]))
    minutes: Minutes = {}
    for (city, start), values in temperatures.items():
        numbers = [value for value in values if value is not None]
        average = (sum(numbers, Decimal(0)) / len(numbers)).quantize(Decimal("1e-10"), ROUND_HALF_UP) if numbers else None
        minutes[city, start] = (start + timedelta(minutes=1), None if average is None else float(average), len(values))
    return minutes


def published(dsn: str, table: str = "weather") -> Minutes:
    """Return every minute as Postgres has it."""
    columns = "city, window_start, window_end, avg_temperature, record_count"
    with psycopg.connect(dsn, connect_timeout=30) as connection:
        rows = connection.execute(f"SELECT {columns} FROM {table}".encode()).fetchall()
    assert len({row[:2] for row in rows}) == len(rows)
    return {(city, start): (end, average, count) for city, start, end, average, count in rows}


def _number(written: str) -> Decimal | None:
    try:
        return Decimal(written).quantize(Decimal("1e-6"), ROUND_HALF_UP)
    except InvalidOperation:
        return None
