"""The error responses of the web server: what is wrong, where, and what to do next."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment
from pydantic import BaseModel
from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from headrace.errors import BusyError, HeadraceError, NotFoundError, QueryError, RetryableError
from headrace.iceberg.catalog.outages import find_outage

_RETRY_SECONDS = "2"
_AWAY = 503
_API = "/api/"
_DESCRIBED = "/openapi.json describes the API"
_log = logging.getLogger(__name__)


class Problem(BaseModel):
    """An error: what is wrong, where, and what to do next."""

    what: str
    where: str
    next_step: str


REFUSALS: dict[int | str, dict[str, object]] = {
    status: {"model": Problem, "description": about}
    for status, about in {
        400: "the request or its query is invalid",
        401: "a token is required",
        404: "table or topic not found",
        421: "the Host header does not name this machine",
        422: "a value is invalid",
        429: "too many queries are running",
        503: "a required service is unavailable",
    }.items()
}


def add_handlers(app: FastAPI) -> None:
    """Make an application answer every error as a Problem."""
    app.add_exception_handler(HeadraceError, _answer_known_error)
    for kind in (OSError, RESTError, SQLAlchemyError):
        app.add_exception_handler(kind, _answer_outage)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_values)
    app.add_exception_handler(Exception, _answer_unexpected_error)


def make_problem(
    status: int, what: str, *, where: str = "", next_step: str = "", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    body = Problem(what=what, where=where, next_step=next_step)
    return JSONResponse(body.model_dump(), status_code=status, headers=dict(headers or {}))


def _answer(
    request: Request,
    status: int,
    what: str,
    *,
    where: str = "",
    next_step: str = "",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem as a page if a browser opens one, else as JSON."""
    opens_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if not opens_page or request.url.path.startswith(_API):
        return make_problem(status, what, where=where, next_step=next_step, headers=headers)
    templates: Environment = request.app.state.templates
    shown = templates.get_template("problem.html").render(status=status, what=what[0].upper() + what[1:], next_step=next_step)
    return HTMLResponse(shown, status_code=status, headers=dict(headers or {}))


def _answer_known_error(request: Request, error: Exception) -> Response:
    """Answer a HeadraceError with its status and message."""
    assert isinstance(error, HeadraceError)
    status = 500
    if isinstance(error, QueryError):
        status = 400
    elif isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, BusyError):
        status = 429
    elif isinstance(error, RetryableError):
        status = _AWAY
    headers = {"Retry-After": _RETRY_SECONDS} if isinstance(error, RetryableError) else None
    return _answer(request, status, error.what, where=error.where, next_step=error.next_step, headers=headers)


def _answer_outage(request: Request, error: Exception) -> Response:
    """Answer an outage of the catalog or the object store; raise any other error again."""
    away = find_outage(error)
    if away is None:
        raise error
    return _answer_known_error(request, away)


def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer an error of the framework: an unknown page, a wrong method, a body that is not JSON."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    what, step = str(error.detail), f"Fix the request; {_DESCRIBED}."
    if error.status_code == HTTPStatus.NOT_FOUND:
        what, step = f"page not found: {path}", f"Check the URL; {_DESCRIBED}."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        what, step = f"{path} does not support {request.method}", f"Use {(error.headers or {}).get('Allow', 'another method')}."
    return _answer(request, error.status_code, what, where=path, next_step=step, headers=error.headers)


def _answer_invalid_values(request: Request, error: Exception) -> Response:
    """Answer a request with invalid values, each with its name."""
    assert isinstance(error, RequestValidationError)
    what = "; ".join(_name(detail) for detail in error.errors())
    return _answer(request, 422, what, where=request.url.path, next_step=f"Fix the request; {_DESCRIBED}.")


def _name(error: Mapping[str, Any]) -> str:
    """Return what is wrong with one value, with its parameter or field, or with the body as a whole."""
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}, at character {int(error['loc'][-1]) + 1}"
    name = ".".join(str(part) for part in error["loc"][1:])
    if not name:
        return "a JSON body is required" if error["type"] == "missing" else "the body is not a JSON object"
    return f"{name}: {error['msg']}"


def _answer_unexpected_error(request: Request, error: Exception) -> Response:
    """Log an unexpected error with its traceback, and answer without details."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(request, 500, "internal server error", where=request.url.path, next_step="Read the server's log.")
