"""The web pages of a pipeline: a Python file with a FastAPI `router`, and static files beside it.

`router` is an APIRouter, or a function that returns one for a pipeline, so that a copy of the pipeline has its own pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader

from headrace.errors import SpecError, UnavailableError
from headrace.spec.loading.modules import load_module
from headrace.spec.model.pipeline import Pipeline

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

_WAIT_SECONDS = 2.0
_MOST_CONNECTIONS = 4


@dataclass(frozen=True)
class OwnPages:
    """The pages of a pipeline. `home` is the page with the pipeline's name, if it has one."""

    pipeline: str
    router: APIRouter
    static: Path
    home: str | None


def load_pages(pipeline: Pipeline, path: Path) -> OwnPages:
    """Return the pages of a pipeline's file. Raises a SpecError if the file can't be loaded."""
    try:
        exported = load_module(path).router
        router = exported(pipeline) if callable(exported) and not isinstance(exported, APIRouter) else exported
        if not isinstance(router, APIRouter):
            raise TypeError(f"router is a {type(router).__name__}, not a fastapi.APIRouter")
    except Exception as error:
        raise SpecError(
            f"the pages can't be loaded: {type(error).__name__}: {error}",
            where=str(path),
            next_step="Fix the file: it must define router = fastapi.APIRouter() with its pages.",
        ) from error
    home = f"/{pipeline.name}"
    has_home = any(isinstance(route, APIRoute) and route.path == home for route in router.routes)
    return OwnPages(pipeline.name, router, path.parent / "static", home if has_home else None)


class Readers:
    """A small pool of read-only connections to the Postgres of published tables, which reconnects after an outage."""

    def __init__(self, conninfo: Callable[[], str | None]) -> None:
        self._conninfo = conninfo
        self._lock = Lock()
        self._pool: ConnectionPool[Connection[tuple[Any, ...]]] | None = None

    @contextmanager
    def connection(self) -> Iterator[Connection[tuple[object, ...]]]:
        """Yield a read-only connection. Raises an UnavailableError if Postgres does not answer."""
        from psycopg import OperationalError
        from psycopg_pool import PoolTimeout

        try:
            with self._current().connection(timeout=_WAIT_SECONDS) as connection:
                yield connection
        except (OperationalError, PoolTimeout) as error:
            raise UnavailableError(
                "Postgres does not answer", next_step="Headrace retries; check it with: headrace status"
            ) from error

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def _current(self) -> ConnectionPool[Connection[tuple[Any, ...]]]:
        """Return the pool for the current address of Postgres, which may change with a restart."""
        from psycopg_pool import ConnectionPool

        conninfo = self._conninfo()
        if conninfo is None:
            raise UnavailableError(
                "Postgres is not running",
                next_step="Start the pipeline, or run: headrace up",
            )
        with self._lock:
            if self._pool is None or self._pool.conninfo != conninfo:
                if self._pool is not None:
                    self._pool.close(timeout=0)
                self._pool = ConnectionPool(
                    conninfo,
                    min_size=1,
                    max_size=_MOST_CONNECTIONS,
                    timeout=_WAIT_SECONDS,
                    reconnect_timeout=5.0,
                    check=ConnectionPool.check_connection,
                    kwargs={"options": "-c default_transaction_read_only=on -c statement_timeout=5000", "connect_timeout": 2},
                    open=True,
                )
            return self._pool


def render_page(request: Request, template: Path, **values: object) -> HTMLResponse:
    """Return a page from a pipeline's own template, which extends a built-in one (`{% extends "base.html" %}`)."""
    shared: Environment = request.app.state.templates
    loader = ChoiceLoader([FileSystemLoader(template.parent), cast("PackageLoader", shared.loader)])
    page = shared.overlay(loader=loader).get_template(template.name)
    return HTMLResponse(page.render(**values))


def readers(request: Request) -> Readers:
    """Return the application's connection pool. A FastAPI dependency."""
    pool: Readers = request.app.state.readers
    return pool
