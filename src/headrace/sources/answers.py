"""The responses of a pipeline's own server: JSON objects; a refusal has its reason and the fix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from headrace.http.body_limit import BodyLimit

RETRY_SECONDS = 1


class Refusal(BaseModel):
    """Why a request was refused."""

    status: str
    message: str


def answer(content: Mapping[str, object], status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with this content."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def refuse(message: str, status: int, *, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with the reason of a refusal."""
    return answer({"status": "error", "message": message}, status, headers=headers)


def refuse_for_now(what: str) -> Response:
    """Return the response to a request that the sender should retry."""
    message = f"{what}: retry in {RETRY_SECONDS} second"
    return refuse(message, 503, headers={"Retry-After": str(RETRY_SECONDS)})


def add_refusals(app: FastAPI) -> None:
    """Add handlers for invalid requests, unknown paths and failures, which answer with a `Refusal`."""
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(HTTPException, _explain)
    app.add_exception_handler(Exception, _fail)


def limit_bodies(app: FastAPI, most_bytes: int, *, except_: Collection[str] = ()) -> None:
    """Refuse longer bodies before they are read, except on paths with limits of their own."""
    refusal = refuse(f"the body has more than {most_bytes:,} bytes: send a smaller one", 413)
    app.add_middleware(BodyLimit, limit=most_bytes, refuse=refusal, except_=except_)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return refuse("; ".join(_describe(problem) for problem in error.errors()), 422)


def _describe(problem: Mapping[str, Any]) -> str:
    """Return one problem of a request: the field, what is wrong, and the fix."""
    name = ".".join(str(part) for part in problem["loc"][1:]) or str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{name} is missing: add it to the request"
    return f"{name}: {str(problem['msg']).removeprefix('Value error, ')}"


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        message = f"not found: {request.url.path}. /openapi.json lists the paths"
    elif error.status_code == 405:
        message = f"method {request.method} is not allowed here. /openapi.json lists the methods"
    else:
        message = str(error.detail)
    return refuse(message, error.status_code, headers=error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    return refuse("internal error: see the server's log. Nothing was acknowledged", 500)
