"""Sinks of generated events: a topic, or the pipeline's HTTP server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from threading import BoundedSemaphore, local
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from confluent_kafka import KafkaException, Producer

from headrace.backoff import HTTP_EVENTS
from headrace.errors import SettingsError, UnavailableError
from headrace.kafka.client import KafkaServers
from headrace.sources.encode import Event, as_json, encoder_of
from headrace.sources.signatures import SignedRequest, sign
from headrace.spec.model.pipeline import Receiver, Stream, Webhook

_LINGER_MS = 50
"""How long an event waits for others of its partition. With 5 ms, nearly every event was a request of its own, which took a
fifth of a core more in the broker and the generator at 500 events per second."""

_FLUSH_SECONDS = 30.0
_CONNECTIONS = 8
_WAITING = 1_000


class Sink(Protocol):
    """Takes events. `finish` waits until all are acknowledged, and raises an error if one was not."""

    def send(self, event: Event, *, number: int) -> None: ...

    def poll(self) -> None: ...

    def has_failed(self) -> bool: ...

    def finish(self, sent: int) -> None: ...


class TopicSink:
    """Send events to their topic: event `i` goes to partition `i` modulo the number of partitions."""

    def __init__(self, stream: Stream, bootstrap_servers: KafkaServers) -> None:
        self._stream = stream
        self._encode = encoder_of(stream)
        self._failed: list[str] = []
        self._producer = Producer(
            bootstrap_servers.client(enable_idempotence=True, linger_ms=_LINGER_MS, message_max_bytes=16 * 1024 * 1024)
        )

    def send(self, event: Event, *, number: int) -> None:
        value, partition = self._encode(event), number % self._stream.partitions
        while True:
            try:
                self._producer.produce(self._stream.topic, value, partition=partition, on_delivery=self._acknowledged)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise UnavailableError(
                    f"Kafka refused an event: {error}",
                    where=f"topic {self._stream.topic}, partition {partition}",
                    next_step="Check that the topic has as many partitions as the pipeline declares: headrace status",
                ) from error

    def poll(self) -> None:
        self._producer.poll(0)

    def has_failed(self) -> bool:
        return bool(self._failed)

    def finish(self, sent: int) -> None:
        left = self._producer.flush(_FLUSH_SECONDS)
        if self._failed or left:
            failed = self._failed[0] if self._failed else "timeout"
            raise UnavailableError(
                f"Kafka did not acknowledge {len(self._failed) + left} of {sent} events: {failed}",
                where=f"topic {self._stream.topic}",
                next_step="Check its address, and that it runs: headrace doctor",
            )

    def _acknowledged(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))


@dataclass(frozen=True)
class Prepared:
    """The request of an event."""

    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Prepare = Callable[[Event], Prepared]


def to_receiver(receiver: Receiver) -> Prepare:
    """Return a function that turns events into a receiver's requests, with fields as GET parameters or a POST body."""

    def prepare(event: Event) -> Prepared:
        if receiver.method == "GET":
            return Prepared("GET", f"{receiver.path}?{urlencode({name: str(value) for name, value in event.items()})}")
        body = json.dumps(event, default=as_json).encode()
        return Prepared("POST", receiver.path, body, {"Content-Type": "application/json"})

    return prepare


def to_webhook(webhook: Webhook, address: str, *, environ: Mapping[str, str]) -> Prepare:
    """Return a function that turns events into signed webhook requests. An event has the sender's `headers` and `body`.

    `address` is the server's public address: some senders sign it.
    """
    secret = environ.get(webhook.secret, "").strip()
    if not secret:
        raise SettingsError(
            "webhooks need a secret, and none is set",
            where=webhook.secret,
            next_step=f"Set it for the server and for the generator, such as: export {webhook.secret}=$(openssl rand -hex 32)",
        )

    def prepare(event: Event) -> Prepared:
        body = json.dumps(event["body"], default=as_json, ensure_ascii=False).encode()
        given = event["headers"]
        assert isinstance(given, Mapping)
        headers = {str(name): str(value) for name, value in given.items()}
        request = SignedRequest("POST", f"{address}{webhook.path}", headers, body)
        signed = sign(request, webhook.signatures[0], secret=secret, now=datetime.now(timezone.utc))
        return Prepared("POST", webhook.path, body, {"Content-Type": "application/json", **headers, **signed})

    return prepare


class HttpSink:
    """Send events over HTTP. Requests are prepared, and signed, just before they are sent.

    An unacknowledged event is sent again after the server's `Retry-After`, so it may be duplicated. Requests go through
    http.client: httpx needs five times the CPU for one, and a generator is there to load the server.
    """

    def __init__(self, address: str, prepare: Prepare, *, is_stopped: Callable[[], bool]) -> None:
        self._prepare, self._is_stopped = prepare, is_stopped
        self._host = urlsplit(address).netloc
        self._pool = ThreadPoolExecutor(max_workers=_CONNECTIONS, thread_name_prefix="send")
        self._connections = local()
        self._room = BoundedSemaphore(_WAITING)
        self._failures: list[UnavailableError] = []

    def send(self, event: Event, *, number: int) -> None:
        self._room.acquire()
        self._pool.submit(self._send, event).add_done_callback(self._done)

    def poll(self) -> None:
        pass

    def has_failed(self) -> bool:
        return bool(self._failures)

    def finish(self, sent: int) -> None:
        self._pool.shutdown()
        if self._failures:
            raise self._failures[0]

    def _done(self, future: Future[None]) -> None:
        self._room.release()
        error = future.exception()
        if error is not None:
            self._failures.append(error if isinstance(error, UnavailableError) else self._failure(str(error), to=""))

    def _send(self, event: Event) -> None:
        def is_retried(error: Exception) -> bool:
            return isinstance(error, _NotAcceptedError) and not self._is_stopped()

        def pause(error: Exception) -> float:
            assert isinstance(error, _NotAcceptedError)
            return error.wait

        HTTP_EVENTS.retry(lambda: self._send_once(self._prepare(event)), on=is_retried, pause=pause)

    def _send_once(self, prepared: Prepared) -> None:
        """Send a request. Raises a _NotAcceptedError if a retry may help."""
        path = prepared.target.partition("?")[0]
        connection = getattr(self._connections, "current", None)
        if connection is None:
            connection = self._connections.current = http.client.HTTPConnection(self._host, timeout=30)
        try:
            connection.request(prepared.method, prepared.target, prepared.body, dict(prepared.headers))
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", errors="replace")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._connections.current = None
            raise self._not_accepted(str(error), to=path, wait=HTTP_EVENTS.first) from error
        if answer.status >= 500:
            raise self._not_accepted(text, to=path, wait=float(answer.headers.get("Retry-After", "1")))
        if not 200 <= answer.status < 300:
            raise self._failure(f"the server refused an event with {answer.status}: {text}", to=path)

    def _not_accepted(self, reason: str, *, to: str, wait: float) -> _NotAcceptedError:
        failure = self._failure(f"the server did not accept an event: {reason}", to=to)
        return _NotAcceptedError(failure, wait=wait)

    def _failure(self, what: str, *, to: str) -> UnavailableError:
        return UnavailableError(what, where=f"http://{self._host}{to}", next_step="Check that the server runs: headrace status")


class _NotAcceptedError(UnavailableError):
    """A server is unavailable, or asks to be asked again in `wait` seconds."""

    def __init__(self, failure: UnavailableError, *, wait: float) -> None:
        super().__init__(failure.what, where=failure.where, next_step=failure.next_step)
        self.wait = wait
