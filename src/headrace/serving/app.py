"""The application that `headrace serve` runs: pages, their JSON, metrics and what pipelines bring along."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from headrace import __version__
from headrace.errors import HeadraceError, NotFoundError, QueryError, RetryableError
from headrace.serving.api import make_api
from headrace.serving.guard import Guard, Lock
from headrace.serving.html import make_pages, make_templates
from headrace.serving.metrics import CONTENT_TYPE, write_metrics
from headrace.serving.pages import OwnPages, Readers
from headrace.serving.room import Room

_STATIC = Path(__file__).parent / "static"
_RETRY_SECONDS = "2"
_DAY = "public, max-age=86400"
_log = logging.getLogger(__name__)


def make_app(room: Room, lock: Lock, *, own_pages: Sequence[OwnPages] = ()) -> FastAPI:
    """Gives back the application; whoever asks passes the lock first."""
    readers = Readers(room.postgres)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        readers.close()

    app = FastAPI(title="Headrace", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    templates = make_templates(own_pages)
    app.state.readers = readers
    app.state.templates = templates
    app.add_middleware(Guard, lock=lock)
    app.add_exception_handler(HeadraceError, _explain)
    app.add_exception_handler(Exception, _apologise)
    app.include_router(make_api(room, started=uuid.uuid4().hex))
    app.include_router(make_pages(room, lock, templates=templates, own_pages=own_pages))

    @app.get("/health", summary="Says that the server answers")
    def health() -> dict[str, str]:
        return {"status": "healthy"}

    @app.get("/metrics", summary="The figures for Prometheus", response_class=PlainTextResponse)
    def metrics() -> Response:
        return Response(write_metrics(room.figures), media_type=CONTENT_TYPE)

    @app.get("/static/plotly.min.js", include_in_schema=False)
    def plotly() -> FileResponse:
        return FileResponse(plotly_file(), headers={"Cache-Control": _DAY})

    for each in own_pages:
        app.include_router(each.router, tags=[each.pipeline])
        if each.static.is_dir():
            app.mount(f"/pages/{each.pipeline}", StaticFiles(directory=each.static))
    app.mount("/static", StaticFiles(directory=_STATIC))

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> RedirectResponse:
        return RedirectResponse("/static/icon.svg", status_code=308)

    return app


def plotly_file() -> Path:
    """Gives back the JavaScript that plotly's Python package ships."""
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def _explain(request: Request, error: Exception) -> Response:
    """Answers an error of ours in its own words."""
    assert isinstance(error, HeadraceError)
    status = 500
    if isinstance(error, QueryError):
        status = 400
    elif isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, RetryableError):
        status = 503
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
    body = {"what": error.what, "where": error.where, "next_step": error.next_step}
    return JSONResponse(body, status_code=status, headers=headers)


def _apologise(request: Request, error: Exception) -> Response:
    """Answers what nobody expected: the log has the details, the page does not."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    body = {"what": "something went wrong in the server", "where": request.url.path, "next_step": "Its log says what."}
    return JSONResponse(body, status_code=500)
