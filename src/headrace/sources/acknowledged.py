"""Send events to Kafka from an asyncio loop, and await the acknowledgement of each.

The loop polls librdkafka for acknowledgements every millisecond while events are in flight. It uses no thread, because a thread
would have to wait for the interpreter's lock whenever the loop is busy.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.kafka.client import KafkaServers

WAIT_SECONDS = 5.0
"""How long an event is retried before its sender gets an error."""
_POLL_SECONDS = 0.001
_REACHABLE_SECONDS = 2.0
_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # acks=all, and no duplicate or reordered event when librdkafka retries
    "linger.ms": 5,  # a request for each event would cost the broker more than the server needs to take them
    "reconnect.backoff.max.ms": 500,
    "message.max.bytes": 16 * 1024 * 1024,
    "log_level": 0,
}


class NotAcknowledgedError(Exception):
    """Kafka has not acknowledged an event in time. It may still have stored it, so a retry may cause a duplicate."""


class EventProducer(Protocol):
    """The producer that a server of events needs."""

    @property
    def is_unavailable(self) -> bool: ...

    async def send(self, topic: str, value: bytes, key: bytes | None = None) -> None: ...

    async def is_reachable(self, topic: str) -> bool: ...

    async def close(self) -> None: ...


class AcknowledgedProducer:
    """A producer for an asyncio loop. `is_unavailable` tells whether Kafka failed to acknowledge the last event."""

    def __init__(self, bootstrap_servers: KafkaServers, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._config = {**bootstrap_servers.client(), **_CONFIG, "message.timeout.ms": int(wait_seconds * 1000)}
        self._producer = Producer(self._config)
        self._in_flight = 0
        self._is_polling = False
        self.is_unavailable = False

    async def send(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        """Return when all in-sync replicas have the event. Raise a NotAcknowledgedError after a bounded wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        try:
            self._producer.produce(topic, value, key, on_delivery=partial(self._resolve, future))
        except BufferError as error:
            raise NotAcknowledgedError("too many events are waiting for Kafka") from error
        except KafkaException as error:
            self._replace_if_dead(error.args[0])
            raise NotAcknowledgedError(str(error)) from error
        self._in_flight += 1
        if not self._is_polling:
            self._is_polling = True
            loop.call_soon(self._poll, loop)
        await future

    async def is_reachable(self, topic: str) -> bool:
        """Return whether a broker answers now."""
        ask = partial(self._producer.list_topics, topic, timeout=_REACHABLE_SECONDS)
        try:
            return bool((await asyncio.get_running_loop().run_in_executor(None, ask)).brokers)
        except KafkaException:
            return False

    async def close(self) -> None:
        """Wait until no event is in flight."""
        while self._in_flight:
            await asyncio.sleep(_POLL_SECONDS)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._producer.poll(0)
        if self._in_flight:
            loop.call_later(_POLL_SECONDS, self._poll, loop)
        else:
            self._is_polling = False

    def _resolve(self, future: asyncio.Future[None], error: KafkaError | None, message: object) -> None:
        self._in_flight -= 1
        self.is_unavailable = error is not None
        if error is not None:
            self._replace_if_dead(error)
        if future.done():  # its sender was cancelled
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(NotAcknowledgedError(str(error)))

    def _replace_if_dead(self, error: KafkaError) -> None:
        """Replace the producer after a fatal error of librdkafka, such as a producer id that the broker no longer knows."""
        if error.fatal():
            self._producer = Producer(self._config)
