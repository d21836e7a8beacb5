"""What is answered when something can't be: always what is wrong, where, and what to do next."""

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
from headrace.iceberg.catalog.outages import find_away

_RETRY_SECONDS = "2"
_AWAY = 503
_API = "/api/"
_DESCRIBED = "/openapi.json describes what can be asked"
_log = logging.getLogger(__name__)


class Problem(BaseModel):
    """What is wrong, where, and what to do next."""

    what: str
    where: str
    next_step: str


REFUSALS: dict[int | str, dict[str, object]] = {
    status: {"model": Problem, "description": about}
    for status, about in {
        400: "the request or its query can't be answered",
        401: "a token is needed",
        404: "there is no such table or topic",
        421: "asked by a name that is not this machine's",
        422: "a value can't be",
        429: "other queries are running already",
        503: "something that is needed is away for now",
    }.items()
}


def add_handlers(app: FastAPI) -> None:
    """Has an application answer every error in the same words and the same shape."""
    app.add_exception_handler(HeadraceError, _explain)
    for kind in (OSError, RESTError, SQLAlchemyError):
        app.add_exception_handler(kind, _look_for_away)
    app.add_exception_handler(HTTPException, _repeat)
    app.add_exception_handler(RequestValidationError, _point_out)
    app.add_exception_handler(Exception, _apologise)


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
    """Return a problem for whoever asks: a page for a browser that opens one, else JSON."""
    opens_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if not opens_page or request.url.path.startswith(_API):
        return make_problem(status, what, where=where, next_step=next_step, headers=headers)
    templates: Environment = request.app.state.templates
    shown = templates.get_template("problem.html").render(status=status, what=what[0].upper() + what[1:], next_step=next_step)
    return HTMLResponse(shown, status_code=status, headers=dict(headers or {}))


def _explain(request: Request, error: Exception) -> Response:
    """Answer an error of ours in its own words."""
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


def _look_for_away(request: Request, error: Exception) -> Response:
    """Answer that the catalog or the object store is away, where that is what an error means."""
    away = find_away(error)
    if away is None:
        raise error
    return _explain(request, away)


def _repeat(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: unknown pages, methods, bodies that are not JSON."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    what, step = str(error.detail), f"Fix the request; {_DESCRIBED}."
    if error.status_code == HTTPStatus.NOT_FOUND:
        what, step = f"there is nothing at {path}", f"Check the address; {_DESCRIBED}."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        what, step = f"{path} does not take {request.method}", f"Use {(error.headers or {}).get('Allow', 'another method')}."
    return _answer(request, error.status_code, what, where=path, next_step=step, headers=error.headers)


def _point_out(request: Request, error: Exception) -> Response:
    """Answers values that can't be, each with its name."""
    assert isinstance(error, RequestValidationError)
    found = "; ".join(_name(each) for each in error.errors())
    return _answer(request, 422, found, where=request.url.path, next_step=f"Fix the request; {_DESCRIBED}.")


def _name(error: Mapping[str, Any]) -> str:
    """Return what is wrong with one value: in which parameter or field, or with the body as a whole."""
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}, at character {int(error['loc'][-1]) + 1}"
    name = ".".join(str(part) for part in error["loc"][1:])
    if not name:
        return "there is no body, and JSON is needed" if error["type"] == "missing" else "the body is not a JSON object"
    return f"{name}: {error['msg']}"


def _apologise(request: Request, error: Exception) -> Response:
    """Answer what nobody expected: the log has the details, the page does not."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(request, 500, "something went wrong in the server", where=request.url.path, next_step="Its log says what.")
