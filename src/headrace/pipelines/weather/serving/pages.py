"""The dashboard of the weather pipeline, and the JSON that it asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from psycopg import sql
from psycopg.errors import UndefinedTable
from pydantic import BaseModel

from headrace.serving.web.pages import Readers, readers, render_page
from headrace.serving.web.problems import REFUSALS
from headrace.spec.model.pipeline import Pipeline

CITIES = (
    *("San Francisco", "New York", "Los Angeles", "Chicago", "Houston"),
    *("Phoenix", "Seattle", "Denver", "Miami", "Boston"),
)
"""The cities with a chart in any case. Other cities with data get one too."""

_PAGE = Path(__file__).parent / "weather.html"
_ALL = sql.SQL("SELECT city, window_start, avg_temperature FROM {} ORDER BY city, window_start")
_LATEST = sql.SQL(
    "SELECT city, window_start, avg_temperature FROM {} WHERE window_start >= %(since)s OR last_updated >= %(since)s"
    " ORDER BY city, window_start"
)
_REFUSALS: dict[int | str, dict[str, object]] = {status: REFUSALS[status] for status in (401, 421, 422, 503)}

Postgres = Annotated[Readers, Depends(readers)]
Since = Annotated[datetime, Query(description="such as 2026-01-08T14:30:00.000Z; UTC if it has no zone")]


class Point(BaseModel):
    """The average of the minute that begins at `time`, in degrees Fahrenheit."""

    time: str
    temperature: float | None


class Weather(BaseModel):
    cities: list[str]
    data: dict[str, list[Point]]


def router(pipeline: Pipeline) -> APIRouter:
    """Return the pages of this pipeline, or of a copy of it: they are called like the pipeline."""
    pages = APIRouter(responses=_REFUSALS)
    name = pipeline.name
    table = sql.Identifier(pipeline.serving.postgres[0].name)

    @pages.get(f"/{name}", include_in_schema=False)
    def dashboard(request: Request) -> HTMLResponse:
        return render_page(request, _PAGE, page=name, cities=CITIES)

    @pages.get(f"/api/{name}", summary="All averages, by city")
    def weather(postgres: Postgres) -> Weather:
        return _ask(postgres, _ALL.format(table), {})

    @pages.get(f"/api/{name}/latest", summary="Averages of minutes that began, or changed, since a moment")
    def latest(postgres: Postgres, since: Since) -> Weather:
        return _ask(postgres, _LATEST.format(table), {"since": _in_utc(since)})

    return pages


def _ask(postgres: Readers, query: sql.Composed, values: Mapping[str, object]) -> Weather:
    """Return the averages that a query finds; before the first is published there is no table, and there are none."""
    try:
        with postgres.connection() as connection:
            return _by_city(connection.execute(query, values).fetchall())
    except UndefinedTable:
        return Weather(cities=[], data={})


def _in_utc(moment: datetime) -> datetime:
    """Return a moment as the table has it: UTC, without a zone."""
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(timezone.utc).replace(tzinfo=None)
    except OverflowError:
        raise HTTPException(422, "since is not a moment of any calendar") from None


def _by_city(rows: Iterable[tuple[object, ...]]) -> Weather:
    data: dict[str, list[Point]] = {}
    for city, start, temperature in rows:
        assert isinstance(start, datetime)
        time = f"{start.isoformat(timespec='milliseconds')}Z"
        known = temperature if isinstance(temperature, float) and math.isfinite(temperature) else None
        data.setdefault(str(city), []).append(Point(time=time, temperature=known))
    order = {city: place for place, city in enumerate(CITIES)}
    cities = sorted(data, key=lambda city: (order.get(city, len(order)), city))
    return Weather(cities=cities, data=data)
