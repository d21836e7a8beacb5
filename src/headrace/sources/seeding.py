"""The server that fills a pipeline's source database and generates traffic on it, with the functions of the seeder file.

The seeder file defines `seed(connection, random, until, …)`, whose other parameters are those of `POST /seed/full`,
`act(connection, random, now)`, which runs one transaction, and optionally `change_schema(connection)`. They get a connection in
a transaction, which this module commits.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date, datetime, timezone
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import psycopg
from fastapi import FastAPI, Query, Request, Response
from fastapi_offline import FastAPIOffline
from psycopg import Connection
from pydantic import BaseModel

from headrace.errors import SpecError
from headrace.http.local_requests import refuse_foreign
from headrace.sources.answers import Refusal, add_refusals, limit_bodies, refuse, refuse_for_now
from headrace.sources.traffic import Traffic, TrafficStatus
from headrace.spec.loading.modules import load_module
from headrace.spec.model.pipeline import Pipeline, Seeder

GIVEN = ("connection", "random", "until")
MAX_ROWS = 10_000_000
MAX_RATE = 10_000.0
MAX_BODY_BYTES = 64 * 1024
_CONNECT_SECONDS = 5
_REFUSALS: dict[int | str, dict[str, Any]] = {code: {"model": Refusal} for code in (409, 422, 503)}


class Health(BaseModel):
    """Whether the database is available."""

    status: str


class Seeded(BaseModel):
    """The number of rows per table, and the duration."""

    rows: dict[str, int]
    seconds: float


class Changed(BaseModel):
    """The schema change that was made."""

    change: str


class TrafficAnswer(BaseModel):
    """The status of traffic: transactions that were committed, rolled back on purpose, and failed."""

    running: bool
    rate: float | None
    seed: int | None
    started_at: datetime | None
    committed: int
    rolled_back: int
    failed: int
    per_second: float
    last_error: str | None
    acts: dict[str, int]


def seeding_app(pipeline: Pipeline, *, dsn: str) -> FastAPI:
    """Return the application, which stops its traffic at shutdown. The database's tables must exist."""
    assert pipeline.capture is not None
    seeder = pipeline.capture.seeder
    assert seeder is not None
    module = _load(seeder)
    traffic = Traffic(dsn, module.act)

    @asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        yield
        traffic.stop()

    app = FastAPIOffline(
        title=f"{pipeline.name}: the seeder", description=inspect.getdoc(module) or "", lifespan=live, redoc_url=None
    )
    app.add_api_route(
        "/seed/full", _seed_endpoint(module.seed, dsn), methods=["POST"], response_model=Seeded, responses=_REFUSALS
    )

    @app.post("/traffic/start", response_model=TrafficAnswer, responses=_REFUSALS)
    def start_traffic(
        rate: Annotated[float, Query(gt=0, le=MAX_RATE, description="transactions per second")] = 20.0,
        seed: Annotated[int, Query(description="the same seed makes the same choices")] = 1,
    ) -> Any:
        """Start traffic at a rate. It runs until it is stopped."""
        if not traffic.start(rate=rate, seed=seed):
            return refuse("traffic is already running: stop it with POST /traffic/stop", 409)
        return _shown(traffic.status())

    @app.post("/traffic/stop", response_model=TrafficAnswer)
    def stop_traffic() -> Any:
        """Stop traffic after the current transaction, and return its status."""
        traffic.stop()
        return _shown(traffic.status())

    @app.get("/traffic/status", response_model=TrafficAnswer)
    def traffic_status() -> Any:
        """Return the status of traffic."""
        return _shown(traffic.status())

    if hasattr(module, "change_schema"):
        change = _change_endpoint(module.change_schema, dsn)
        app.add_api_route("/schema/change", change, methods=["POST"], response_model=Changed, responses=_REFUSALS)

    @app.get("/health", response_model=Health, responses={503: {"model": Refusal}})
    def health() -> Any:
        """Return whether the database is available."""
        with psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS) as connection:
            connection.execute("SELECT 1")
        return {"status": "healthy"}

    app.middleware("http")(_refuse_foreign)
    add_refusals(app)
    limit_bodies(app, MAX_BODY_BYTES)
    app.add_exception_handler(psycopg.OperationalError, _unavailable)
    return app


def _load(seeder: Seeder) -> ModuleType:
    where = str(seeder.file)
    try:
        module = load_module(Path(seeder.file))
    except Exception as error:
        raise SpecError(
            f"can't load the seeder: {type(error).__name__}: {error}", where=where, next_step="Fix the file."
        ) from error
    missing = [name for name in ("seed", "act") if not callable(getattr(module, name, None))]
    if missing:
        raise SpecError(
            f"the seeder has no function {' and no '.join(missing)}",
            where=where,
            next_step="Add def seed(connection, random, until) and def act(connection, random, now).",
        )
    return module


def _seed_endpoint(function: Callable[..., dict[str, int] | None], dsn: str) -> Callable[..., Any]:
    """Return the handler with the seed function's own parameters."""
    busy = threading.Lock()

    def seed_full(seed: int, **sizes: object) -> Any:
        if not busy.acquire(blocking=False):
            return refuse("the database is being filled: wait until it is done", 409)
        try:
            began = time.monotonic()
            with psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS) as connection:
                rows = function(connection, Random(seed), _today(), **sizes)
            if rows is None:
                return refuse("the database is already filled: set replace=true to empty it first", 409)
            return Seeded(rows=rows, seconds=round(time.monotonic() - began, 3))
        finally:
            busy.release()

    hints = get_type_hints(function)
    seed = Annotated[int, Query(description="the same seed on the same day makes the same rows")]
    shown = [inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY, default=1, annotation=seed)]
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in GIVEN:
            kind = Annotated[int, Query(ge=0, le=MAX_ROWS)] if hints[name] is int else hints[name]
            shown.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
    seed_full.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    seed_full.__doc__ = function.__doc__
    return seed_full


def _change_endpoint(function: Callable[[Connection], str | None], dsn: str) -> Callable[[], Any]:
    def change_schema() -> Any:
        with psycopg.connect(dsn, connect_timeout=_CONNECT_SECONDS) as connection:
            change = function(connection)
        return refuse("all schema changes were already made", 409) if change is None else Changed(change=change)

    change_schema.__doc__ = function.__doc__
    return change_schema


def _shown(status: TrafficStatus) -> TrafficAnswer:
    return TrafficAnswer(**{**vars(status), "acts": dict(status.acts)})


def _today() -> date:
    return datetime.now(timezone.utc).date()


async def _refuse_foreign(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuse requests that a page of another site makes a browser send, because requests change the database."""
    foreign = refuse_foreign(request.method, request.headers)
    return await answer(request) if foreign is None else refuse(f"{foreign.what}. {foreign.next_step}", foreign.status)


async def _unavailable(request: Request, error: Exception) -> Response:
    return refuse_for_now("Postgres is unavailable")
