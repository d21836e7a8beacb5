"""What is answered when something can't be: always what is wrong, where, and what to do next."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from headrace.errors import HeadraceError, NotFoundError, QueryError, RetryableError

_RETRY_SECONDS = "2"
_AWAY = 503
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
        404: "there is no such table",
        421: "asked by a name that is not this machine's",
        422: "a value can't be",
        503: "something that is needed is away for now",
    }.items()
}


def add_handlers(app: FastAPI) -> None:
    """Has an application answer every error in the same words and the same shape."""
    app.add_exception_handler(HeadraceError, _explain)
    app.add_exception_handler(HTTPException, _repeat)
    app.add_exception_handler(RequestValidationError, _point_out)
    app.add_exception_handler(Exception, _apologise)


def make_problem(
    status: int, what: str, *, where: str = "", next_step: str = "", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    body = Problem(what=what, where=where, next_step=next_step)
    return JSONResponse(body.model_dump(), status_code=status, headers=dict(headers or {}))


def _explain(request: Request, error: Exception) -> Response:
    """Answers an error of ours in its own words."""
    assert isinstance(error, HeadraceError)
    status = 500
    if isinstance(error, QueryError):
        status = 400
    elif isinstance(error, NotFoundError):
        status = 404
    elif isinstance(error, RetryableError):
        status = _AWAY
    headers = {"Retry-After": _RETRY_SECONDS} if status == _AWAY else None
    return make_problem(status, error.what, where=error.where, next_step=error.next_step, headers=headers)


def _repeat(request: Request, error: Exception) -> Response:
    """Answers what the framework refuses: unknown pages, methods, bodies that are not JSON."""
    assert isinstance(error, HTTPException)
    return make_problem(error.status_code, str(error.detail), where=request.url.path, headers=error.headers)


def _point_out(request: Request, error: Exception) -> Response:
    """Answers values that can't be, each with its name."""
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(str(part) for part in each['loc'][1:]) or 'the body'}: {each['msg']}" for each in error.errors()]
    return make_problem(422, "; ".join(found), where=request.url.path, next_step="Fix the request; /openapi.json describes it.")


def _apologise(request: Request, error: Exception) -> Response:
    """Answers what nobody expected: the log has the details, the page does not."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return make_problem(500, "something went wrong in the server", where=request.url.path, next_step="Its log says what.")
