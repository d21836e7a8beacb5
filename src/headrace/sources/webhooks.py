"""Receive signed webhooks: turn a request's raw bytes into messages that Kafka has acknowledged, or refuse the request.

1. Read: refuse a request without a signature before reading its body (401). Read the body up to its limit (413), within the
   memory budget of all unauthenticated bodies (429).
2. Check: check the signature on the raw bytes, before they are parsed (401).
3. Parse: parse the JSON (400), and split a list into its payloads if the webhook accepts lists.
4. Map: the pipeline's function returns the type, id and stream of each payload.
5. Send: send all messages to Kafka. Respond with 200 once it has acknowledged all of them, or with 202 if a type is unknown and
   its payload went to the fallback stream. Otherwise respond with 503; the sender retries, and the ids identify duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

import msgspec
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from headrace.errors import SettingsError
from headrace.sources.acknowledged import NotAcknowledgedError
from headrace.sources.answers import RETRY_SECONDS, answer, refuse, refuse_for_now
from headrace.sources.body_budget import BodyBudget, BudgetError, Share
from headrace.sources.signatures import SCHEMES, SignatureError, SignedRequest, check_signature, is_signed, say_unsigned
from headrace.spec.model.pipeline import SignatureScheme, Stream, Webhook
from headrace.spec.model.received import Delivery, Message, Payload, PayloadError, read_payload
from headrace.spec.model.surrogates import keep_lone_surrogates
from headrace.spec.model.types import Primitive
from headrace.spec.model.webhooks import EVENT_ID, LOADED_AT, PAYLOAD, TYPE

MAX_BODY_BYTES = 1024 * 1024
MAX_PAYLOADS = 1_000
BODY_SECONDS = 30.0
_READ_AWAY = 16
"""Up to this many times the limit, a too long body is read and discarded, so that its sender gets the 413 response."""
_LIST = msgspec.json.Decoder(
    msgspec.defstruct(
        "Payloads",
        [(f"payload_{at}", msgspec.Raw, msgspec.Raw()) for at in range(MAX_PAYLOADS)],
        array_like=True,
        forbid_unknown_fields=True,
    )
)
"""Decodes a list of at most so many payloads. It stops at the first payload too many; list[Raw] with a maximum length would
create all objects before counting them."""
_LONGER = f"at most length {MAX_PAYLOADS}"
_TEXT = Primitive("string")

Make = Callable[[Payload, Delivery], Message]


class Send(Protocol):
    """Sends a value and returns once Kafka has acknowledged it. Raises a NotAcknowledgedError otherwise."""

    def __call__(self, topic: str, value: bytes, key: bytes | None = None) -> Awaitable[None]: ...


@dataclass(frozen=True)
class Lock:
    """The signature schemes and secrets of a webhook. Without a secret, the webhook is off."""

    signatures: tuple[SignatureScheme, ...]
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def is_off(self) -> bool:
        return not self.secrets

    @classmethod
    def of(cls, webhook: Webhook, environ: Mapping[str, str]) -> Lock:
        """Return the lock from environment variables.

        SECRET is the secret, SECRET_PREVIOUS the one that it replaces, and SECRET_SIGNATURES a comma-separated list of older
        signature schemes to accept beside the webhook's first one.
        """
        names = (webhook.secret, f"{webhook.secret}_PREVIOUS")
        secrets = {name: environ.get(name, "").strip() for name in names}
        for name, secret in secrets.items():
            if secret:
                _check_secret(webhook.signatures[0], secret, name=name)
        if not secrets[webhook.secret]:
            return cls(webhook.signatures[:1], ())
        return cls(_accepted(webhook, environ), tuple(secret for secret in secrets.values() if secret))


@dataclass(frozen=True)
class Limits:
    """The maximum size of a body, and the server's public URL if it differs from the requested one."""

    max_body_bytes: int = MAX_BODY_BYTES
    public_url: str | None = None


STANDARD = Limits()


@dataclass(frozen=True)
class Intake:
    """A webhook and everything needed to answer its requests.

    `topics`, `texts` (the text columns) and `longest` (the maximum message size) are by stream name.
    """

    webhook: Webhook
    make: Make
    lock: Lock
    limits: Limits
    send: Send
    budget: BodyBudget
    topics: Mapping[str, str]
    texts: Mapping[str, frozenset[str]]
    longest: Mapping[str, int]

    @classmethod
    def of(
        cls,
        webhook: Webhook,
        make: Make,
        *,
        streams: Sequence[Stream],
        lock: Lock,
        limits: Limits,
        send: Send,
        budget: BodyBudget,
    ) -> Intake:
        own = [stream for stream in streams if stream.name in webhook.all_streams]
        return cls(
            webhook,
            make,
            lock,
            limits,
            send,
            budget,
            topics={stream.name: stream.topic for stream in own},
            texts={stream.name: frozenset(column.name for column in stream.columns if column.type == _TEXT) for stream in own},
            longest={stream.name: stream.max_record_bytes for stream in own},
        )

    async def answer(self, request: Request) -> Response:
        """Return the response to a request."""
        if self.lock.is_off:
            return refuse_for_now(f"this endpoint is off, because {self.webhook.secret} is not set on the server")
        headers = _headers_of(request)
        unread = SignedRequest(request.method, "", headers, b"")
        if not is_signed(unread, self.lock.signatures):
            return _refuse_signature(SignatureError(say_unsigned(self.lock.signatures)))
        with self.budget.share() as share:
            body = await self._receive(request, share)
            if isinstance(body, Response):
                return body
            delivery = Delivery(headers, body, datetime.now(timezone.utc))
            signed = SignedRequest(request.method, _uri_of(request, self.limits.public_url), headers, body)
            try:
                check_signature(signed, self.lock.signatures, secrets=self.lock.secrets, now=delivery.at)
            except SignatureError as error:
                return _refuse_signature(error)
        return await self._take(delivery)

    async def _receive(self, request: Request, share: Share) -> bytes | Response:
        """Return the body of a request, or the response that refuses it."""
        limit = self.limits.max_body_bytes
        share.task = asyncio.ensure_future(_read_body(request, limit=limit, budget=self.budget, share=share))
        try:
            body = await asyncio.wait_for(share.task, BODY_SECONDS)
        except asyncio.TimeoutError:
            return refuse(f"the body did not arrive within {BODY_SECONDS:.0f} seconds: retry", 408)
        except ClientDisconnect:
            return refuse("the sender disconnected", 400)
        except BudgetError:
            return _refuse_overload()
        except asyncio.CancelledError:
            if not share.is_dropped:
                raise
            return _refuse_overload()
        return refuse(f"the body has more than {limit:,} bytes: send a smaller one", 413) if body is None else body

    async def _take(self, delivery: Delivery) -> Response:
        """Send the messages of an authenticated delivery to Kafka, and return the response."""
        try:
            messages = self._make_all(delivery)
        except PayloadError as error:
            return refuse(f"invalid body: {error}", 400)
        except RecursionError:
            return refuse("invalid body: it is nested too deeply", 400)
        except TooManyError:
            return refuse(f"the body has more than {MAX_PAYLOADS:,} events: send fewer at once", 413)
        if any(len(value) > self.longest[stream] for stream, value, _ in messages):
            return refuse("an event of the body is too large for its stream: send a smaller one", 413)
        try:
            await self._send_all(messages)
        except NotAcknowledgedError as error:
            return refuse_for_now(f"Kafka has not acknowledged the events ({error})")
        unknown = sum(stream == self.webhook.other for stream, _, _ in messages)
        return answer({"status": "accepted", "events": len(messages), "unknown": unknown}, 202 if unknown else 200)

    def _make_all(self, delivery: Delivery) -> list[tuple[str, bytes, bytes | None]]:
        """Return the stream, the value and the key of each message."""
        messages = []
        for payload in _payloads(delivery.body, batches=self.webhook.batches):
            message = self.make(payload, delivery)
            stream = self.webhook.other if message.stream is None else message.stream
            fields = {PAYLOAD: payload.written.decode("utf-8")} if message.stream is None else self._fit(message.fields, stream)
            # Headrace's fields come last, so that a payload can't set its own type, id or time.
            event = {**fields, TYPE: message.type, EVENT_ID: message.id, LOADED_AT: delivery.at}
            key = None if message.key is None else message.key.encode("utf-8")
            messages.append((stream, msgspec.json.encode(event), key))
        return messages

    def _fit(self, fields: Mapping[str, object], stream: str) -> dict[str, object]:
        """Return the fields, with other values than text as JSON in text columns."""
        texts = self.texts[stream]
        return {name: _as_text(value) if name in texts else value for name, value in fields.items()}

    async def _send_all(self, messages: Sequence[tuple[str, bytes, bytes | None]]) -> None:
        if len(messages) == 1:
            stream, value, key = messages[0]
            await self.send(self.topics[stream], value, key)
            return
        sent = (self.send(self.topics[stream], value, key) for stream, value, key in messages)
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if outcome is not None:
                raise outcome


class TooManyError(Exception):
    """A list has more payloads than the limit."""


def _refuse_signature(error: SignatureError) -> Response:
    return refuse(f"invalid signature: {error}", 401, headers={"WWW-Authenticate": "Signature"})


def _refuse_overload() -> Response:
    message = f"too many large bodies at once: retry in {RETRY_SECONDS} second"
    return refuse(message, 429, headers={"Retry-After": str(RETRY_SECONDS)})


async def _read_body(request: Request, *, limit: int, budget: BodyBudget, share: Share) -> bytes | None:
    """Return the body, or None if it exceeds the limit. The part beyond the limit is not kept."""
    chunks: list[bytes] = []
    length = 0
    async for chunk in request.stream():
        length += len(chunk)
        if length <= limit:
            await budget.take(share, length)
            chunks.append(chunk)
        elif length > limit * _READ_AWAY:
            return None
        else:
            chunks.clear()
    return b"".join(chunks) if length <= limit else None


def _payloads(body: bytes, *, batches: bool) -> list[Payload]:
    """Return the payloads of a body."""
    try:
        body.decode("utf-8")
        text = keep_lone_surrogates(body.strip(b" \t\r\n"))
        is_list = batches and text.startswith(b"[")
        return [read_payload(raw) for raw in (_split(text) if is_list else [text])]
    except UnicodeDecodeError:
        raise PayloadError("it is not UTF-8") from None
    except RecursionError:
        raise PayloadError("it is nested too deeply") from None
    except msgspec.ValidationError:
        raise PayloadError("it is not a JSON object") from None
    except msgspec.DecodeError as error:
        raise PayloadError(f"it is not JSON: {error}") from None


def _split(text: bytes) -> list[bytes]:
    """Return the raw payloads of a list. Raise a TooManyError at the first payload beyond the limit."""
    try:
        payloads = msgspec.structs.astuple(_LIST.decode(text))
    except msgspec.ValidationError as error:
        if _LONGER in str(error):
            raise TooManyError from None
        raise
    return [bytes(raw) for raw in payloads if bytes(raw)]


def _as_text(value: object) -> object:
    if not isinstance(value, msgspec.Raw):
        return value
    written = bytes(value)
    return value if written.startswith(b'"') or written == b"null" else written.decode("utf-8")


def _headers_of(request: Request) -> dict[str, str]:
    """Return the headers by lower-case name; the first one of duplicates."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.scope["headers"])}


def _uri_of(request: Request, public_url: str | None) -> str:
    """Return the URL as sent, without decoding."""
    scope = request.scope
    path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    base = public_url.rstrip("/") if public_url else f"{scope['scheme']}://{request.headers.get('host', '')}"
    return f"{base}{path}?{query}" if query else f"{base}{path}"


def _accepted(webhook: Webhook, environ: Mapping[str, str]) -> tuple[SignatureScheme, ...]:
    variable = f"{webhook.secret}_SIGNATURES"
    named = [name.strip() for name in environ.get(variable, "").split(",") if name.strip()]
    for name in named:
        if name not in webhook.signatures:
            raise SettingsError(
                f'unknown signature "{name}" of {webhook.path}',
                where=variable,
                next_step=f"Signatures are: {', '.join(webhook.signatures)}.",
            )
    first, *older = webhook.signatures
    return (first, *(scheme for scheme in older if scheme in named))


def _check_secret(scheme: SignatureScheme, secret: str, *, name: str) -> None:
    try:
        SCHEMES[scheme].check_secret(secret)
    except ValueError as error:
        raise SettingsError(
            f"invalid secret: {error}", where=name, next_step="Copy the secret exactly as its sender shows it."
        ) from None
