"""The server that receives a pipeline's events over HTTP: a FastAPI application of the functions in the pipeline's file.

A request succeeds only after Kafka has acknowledged its event. A refusal has the reason and the fix: `{"status": "error",
"message": …}`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import Any, Literal, get_type_hints
from urllib.parse import unquote_to_bytes

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from headrace.errors import SpecError
from headrace.kafka.client import KafkaServers
from headrace.sources.acknowledged import WAIT_SECONDS, AcknowledgedProducer, EventProducer, NotAcknowledgedError
from headrace.sources.answers import Refusal, add_refusals, answer, limit_bodies, refuse, refuse_for_now
from headrace.sources.body_budget import BodyBudget
from headrace.sources.encode import encoder_of
from headrace.sources.webhooks import STANDARD, Intake, Limits, Lock
from headrace.spec.loading.modules import load_module
from headrace.spec.model.pipeline import HttpSource, Pipeline, Receiver, Stream, Webhook
from headrace.spec.model.received import Received

NOW = "now"
_BARE_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class Health(BaseModel):
    """Whether the server accepts events."""

    status: str


class Readiness(BaseModel):
    """Whether the server is ready for events, and which webhooks have a secret."""

    status: str
    webhooks: dict[str, Literal["on", "off"]]


class Accepted(BaseModel):
    """The number of events in a webhook request, and how many have an unknown type."""

    status: str
    events: int
    unknown: int


def receiving_app(
    pipeline: Pipeline,
    *,
    bootstrap_servers: KafkaServers,
    wait_seconds: float = WAIT_SECONDS,
    environ: Mapping[str, str] | None = None,
    limits: Limits = STANDARD,
) -> FastAPI:
    """Return the application, which owns its producer. The topics must exist.

    During an outage of Kafka, a request fails after at most `wait_seconds`. Secrets of webhooks are in `environ`; a webhook
    without a secret is off.
    """
    producer = AcknowledgedProducer(bootstrap_servers, wait_seconds=wait_seconds)
    return app_with(producer, pipeline, environ=environ or {}, limits=limits)


def app_with(producer: EventProducer, pipeline: Pipeline, *, environ: Mapping[str, str], limits: Limits) -> FastAPI:
    """Return the application that sends events to `producer`, and closes it at shutdown."""
    source = pipeline.http
    assert source is not None

    @asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        yield
        await producer.close()

    # No docs pages, because they would load scripts from other hosts.
    app = FastAPI(title=pipeline.name, description=pipeline.about, lifespan=live, docs_url=None, redoc_url=None)
    streams = {stream.name: stream for stream in pipeline.streams}
    functions = _load_functions(source)
    for receiver in source.receivers:
        _add_receiver(app, receiver, functions[receiver.function], streams[receiver.stream], producer)

    budget = BodyBudget()
    locks = {webhook.path: Lock.of(webhook, environ) for webhook in source.webhooks}
    for webhook in source.webhooks:
        make, lock = functions[webhook.function], locks[webhook.path]
        intake = Intake.of(webhook, make, streams=pipeline.streams, lock=lock, limits=limits, send=producer.send, budget=budget)
        _add_webhook(app, intake)

    @app.get("/health", response_model=Health, responses={503: {"model": Refusal}})
    async def health() -> Response:
        """Return whether events are accepted: not during an outage of Kafka."""
        return refuse_for_now("Kafka does not acknowledge events") if producer.is_unavailable else answer({"status": "healthy"})

    @app.get("/ready", response_model=Readiness, responses={503: {"model": Refusal}})
    async def ready() -> Response:
        """Return whether a broker answers now, and which webhooks are on."""
        if not await producer.is_reachable(pipeline.streams[0].topic):
            return refuse_for_now("Kafka does not answer")
        return answer({"status": "ready", "webhooks": {path: "off" if lock.is_off else "on" for path, lock in locks.items()}})

    add_refusals(app)
    limit_bodies(app, limits.max_body_bytes, except_=tuple(locks))
    return app


def _load_functions(source: HttpSource) -> Mapping[str, Callable[..., Any]]:
    try:
        module = load_module(source.file)
        return {name: getattr(module, name) for name in source.functions}
    except Exception as error:
        raise SpecError(
            f"can't load the receivers: {type(error).__name__}: {error}", where=str(source.file), next_step="Fix the file."
        ) from error


def _add_receiver(
    app: FastAPI, receiver: Receiver, function: Callable[..., Received], stream: Stream, producer: EventProducer
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
            return refuse(f"the event has more than {stream.max_record_bytes:,} bytes: send a smaller one", 413)
        try:
            await producer.send(stream.topic, value)
        except NotAcknowledgedError as error:
            return refuse_for_now(f"Kafka has not acknowledged the event ({error})")
        return answer(received.answer)

    shown = [item.replace(annotation=hints[name], kind=item.KEYWORD_ONLY) for name, item in parameters.items() if name != NOW]
    endpoint.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    endpoint.__name__ = receiver.function
    endpoint.__doc__ = function.__doc__
    refusals: dict[int | str, dict[str, Any]] = {code: {"model": Refusal} for code in (400, 413, 422, 503)}
    app.add_api_route(
        receiver.path, endpoint, methods=[receiver.method], responses=refusals, dependencies=[Depends(_check_encoding)]
    )


async def _check_encoding(request: Request) -> None:
    """Refuse a query whose percent-encodings are not UTF-8: Starlette would replace the bytes silently."""
    query: bytes = request.scope["query_string"]
    try:
        unquote_to_bytes(query).decode("utf-8")
        is_encoded = _BARE_PERCENT.search(query) is None
    except UnicodeDecodeError:
        is_encoded = False
    if not is_encoded:
        raise HTTPException(400, "the query has an invalid percent-encoding: encode text as UTF-8, and a percent sign as %25")


def _add_webhook(app: FastAPI, intake: Intake) -> None:
    webhook = intake.webhook

    async def endpoint(request: Request) -> Response:
        return await intake.answer(request)

    endpoint.__name__ = webhook.function
    endpoint.__doc__ = intake.make.__doc__
    responses: dict[int | str, dict[str, Any]] = {code: {"model": Refusal} for code in (400, 401, 408, 413, 429, 503)}
    responses[202] = {"model": Accepted, "description": "Kafka has it; its type is unknown"}
    app.add_api_route(
        webhook.path,
        endpoint,
        methods=["POST"],
        response_model=Accepted,
        responses=responses,
        openapi_extra=_described(webhook),
    )


def _described(webhook: Webhook) -> dict[str, Any]:
    """Return the OpenAPI description of a webhook's request, which the endpoint reads as bytes."""
    payload: dict[str, Any] = {"type": "object"}
    schema = {"anyOf": [payload, {"type": "array", "items": payload}]} if webhook.batches else payload
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
