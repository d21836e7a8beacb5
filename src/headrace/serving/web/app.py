"""The application of `headrace serve`: the pages and their JSON API, metrics, and the pipelines' own pages."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from headrace.http.body_limit import BodyLimit
from headrace.serving.metrics import CONTENT_TYPE, write_metrics
from headrace.serving.sql.query_service import QueryService
from headrace.serving.web.api import make_api
from headrace.serving.web.context import WebContext
from headrace.serving.web.guard import Guard, Lock
from headrace.serving.web.html import make_pages, make_templates
from headrace.serving.web.pages import OwnPages, Readers
from headrace.serving.web.problems import add_handlers, make_problem
from headrace.serving.web.topics_api import make_topics_api
from headrace.version import __version__

_STATIC = Path(__file__).parent / "static"
MAX_BODY_BYTES = 256 * 1024
"""Enough for the longest query with every character escaped."""
_TOO_LONG = make_problem(413, f"the body has more than {MAX_BODY_BYTES:,} bytes", next_step="Send a shorter one.")
_DAY = "public, max-age=86400"


def make_app(context: WebContext, lock: Lock, *, own_pages: Sequence[OwnPages] = ()) -> FastAPI:
    """Return the application. Every request must pass the lock first."""
    readers = Readers(context.postgres)
    queries = QueryService()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        readers.close()
        queries.close()

    app = FastAPI(title="Headrace", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    templates = make_templates(own_pages)
    app.state.readers = readers
    app.state.templates = templates
    app.add_middleware(BodyLimit, limit=MAX_BODY_BYTES, refuse=_TOO_LONG)
    app.add_middleware(Guard, lock=lock)  # added last, so it runs first and rejects requests before their body is read
    add_handlers(app)
    app.include_router(make_api(context, queries, started=uuid.uuid4().hex))
    app.include_router(make_topics_api(context.topics))
    app.include_router(make_pages(context, lock, templates=templates, own_pages=own_pages))

    @app.get("/health", summary="Whether the server answers")
    def health() -> dict[str, str]:
        return {"status": "healthy"}

    @app.get("/metrics", summary="The figures for Prometheus", response_class=PlainTextResponse)
    def metrics() -> Response:
        return Response(write_metrics(context.figures), media_type=CONTENT_TYPE)

    @app.get("/static/plotly.min.js", include_in_schema=False)
    def plotly() -> FileResponse:
        return FileResponse(plotly_file(), headers={"Cache-Control": _DAY})

    for pages in own_pages:
        app.include_router(pages.router, tags=[pages.pipeline])
        if pages.static.is_dir():
            app.mount(f"/pages/{pages.pipeline}", StaticFiles(directory=pages.static))
    app.mount("/static", StaticFiles(directory=_STATIC))

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> RedirectResponse:
        return RedirectResponse("/static/icon.svg", status_code=308)

    return app


def plotly_file() -> Path:
    """Return the path of the JavaScript in plotly's Python package."""
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
