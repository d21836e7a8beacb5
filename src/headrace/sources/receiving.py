"""The server that takes a pipeline's events over HTTP: a FastAPI application made of the functions of its file.

A request is answered with success only once Kafka has acknowledged its event. What is refused is told what is wrong and what
to do about it: `{"status": "error", "message": …}`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import Any, get_type_hints

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from headrace.errors import SpecError
from headrace.sources.acknowledged import WAIT_SECONDS, AcknowledgedProducer, NotAcknowledgedError
from headrace.sources.encode import encoder_of
from headrace.spec.modules import load_module
from headrace.spec.pipeline import HttpSource, Pipeline, Receiver, Stream
from headrace.spec.received import Received

RETRY_SECONDS = 1
NOW = "now"
Endpoint = Callable[..., Any]


class Refusal(BaseModel):
    """Why a request was not taken."""

    status: str
    message: str


class Health(BaseModel):
    """Whether the server takes events."""

    status: str


def receiving_app(pipeline: Pipeline, *, bootstrap_servers: str, wait_seconds: float = WAIT_SECONDS) -> FastAPI:
    """Gives back the application; its producer lives as long as it does. The topics must be there.

    A request hears after `wait_seconds` at the latest that Kafka is away.
    """
    source = pipeline.http
    assert source is not None
    producer = AcknowledgedProducer(bootstrap_servers, wait_seconds=wait_seconds)

    @asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        yield
        await producer.close()

    # The documentation's pages would load scripts from elsewhere.
    app = FastAPI(title=pipeline.name, description=pipeline.about, lifespan=live, docs_url=None, redoc_url=None)
    streams = {stream.name: stream for stream in pipeline.streams}
    functions = _load_functions(source)
    for receiver in source.receivers:
        _add_receiver(app, receiver, functions[receiver.function], streams[receiver.stream], producer)

    @app.get("/health", response_model=Health, responses={503: {"model": Refusal}})
    async def health() -> Response:
        """Says whether events are taken: not while Kafka is away."""
        return _away("Kafka does not acknowledge events") if producer.is_away else _answer({"status": "healthy"})

    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(HTTPException, _explain)
    app.add_exception_handler(Exception, _fail)
    return app


def _load_functions(source: HttpSource) -> Mapping[str, Callable[..., Received]]:
    try:
        module = load_module(source.file)
        return {each.function: getattr(module, each.function) for each in source.receivers}
    except Exception as error:
        raise SpecError(
            f"the receivers can't be loaded: {type(error).__name__}: {error}", where=str(source.file), next_step="Fix the file."
        ) from error


def _add_receiver(
    app: FastAPI, receiver: Receiver, function: Callable[..., Received], stream: Stream, producer: AcknowledgedProducer
) -> None:
    encode = encoder_of(stream)
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    takes_now = NOW in parameters

    async def endpoint(**given: object) -> Response:
        if takes_now:
            given[NOW] = datetime.now(timezone.utc)
        received = function(**given)
        value = encode(received.event)
        if len(value) > stream.max_record_bytes:
            return _answer(_refusal(f"the event has more than {stream.max_record_bytes:,} bytes: send a smaller one"), 413)
        try:
            await producer.send(stream.topic, value)
        except NotAcknowledgedError as error:
            return _away(f"Kafka has not acknowledged the event ({error})")
        return _answer(received.answer)

    shown = [each.replace(annotation=hints[name], kind=each.KEYWORD_ONLY) for name, each in parameters.items() if name != NOW]
    endpoint.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    endpoint.__name__ = receiver.function
    endpoint.__doc__ = function.__doc__
    refusals: dict[int | str, dict[str, Any]] = {code: {"model": Refusal} for code in (413, 422, 503)}
    app.add_api_route(receiver.path, endpoint, methods=[receiver.method], responses=refusals)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _answer(_refusal("; ".join(_describe(each) for each in error.errors())), 422)


def _describe(problem: Mapping[str, Any]) -> str:
    """Gives back one problem of a request: which part of it, what is wrong, what to do."""
    name = ".".join(str(part) for part in problem["loc"][1:]) or str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{name} is missing: add it to the request"
    return f"{name}: {str(problem['msg']).removeprefix('Value error, ')}"


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        message = f"there is nothing at {request.url.path}: see /openapi.json for what is"
    elif error.status_code == 405:
        message = f"{request.method} does not work here: see /openapi.json for what does"
    else:
        message = str(error.detail)
    return _answer(_refusal(message), error.status_code, headers=error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    return _answer(_refusal("the server failed: its log says why. Nothing was acknowledged"), 500)


def _away(what: str) -> Response:
    message = f"{what}: send it again in {RETRY_SECONDS} second"
    return _answer(_refusal(message), 503, headers={"Retry-After": str(RETRY_SECONDS)})


def _refusal(message: str) -> dict[str, str]:
    return {"status": "error", "message": message}


def _answer(content: Mapping[str, object], status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
