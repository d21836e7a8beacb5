"""The HTTP server that `serve`, `receive` and the seeder share: uvicorn, with limits on connections, time and log lines.

uvicorn waits without limit for the rest of a request, and for a client that does not read its response. Here every phase of a
connection has a deadline. At the limit of connections, the server closes the connection that has kept it waiting for longest,
so idle connections can't block clients that send whole requests.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.http.log_throttle import throttle

BACKLOG = 1_024
"""How many connections may wait to be accepted."""
_ACCEPTED_AT_ONCE = 16
"""asyncio accepts up to this many connections before it handles other events, and logs as many errors when no file descriptor
is left. It uses the same number for the backlog, which `_Server` sets again afterwards."""
_M_MMAP_THRESHOLD = -3  # of malloc.h
_LARGE_BLOCK_BYTES = 128 * 1024
_FILES = 4_096
_FEWEST = 8
_EVICTED_AT_ONCE = 16
_LOGGERS = ("uvicorn.error", "asyncio", "headrace.serving.web.problems", "headrace.serving.sql.query_pool")
_NO_DESCRIPTORS = "socket.accept() out of system resource"
_STARTUP_FAILURE = 3
_HEADER_BYTES = 32 * 1024
_READ_BYTES = 32 * 1024
_UNREAD_BYTES = 16 * 1024
"""The unread part of a body that one connection may buffer: 24 MB for 512 connections instead of 160 MB."""

Phase = Literal["header", "body"]


@dataclass(frozen=True)
class ServerLimits:
    """The limit of connections, and the time that a client has for each part of a request.

    `body_seconds` is longer than the applications' own limits, whose errors explain more. A client that has been sending a body
    for longer than `patience_seconds` may be disconnected to make room for others.
    """

    connections: int = 512
    header_seconds: float = 10.0
    body_seconds: float = 45.0
    write_seconds: float = 30.0
    patience_seconds: float = 1.0


STANDARD = ServerLimits()


def make_server(app: Any, *, host: str = "127.0.0.1", port: int = 0, limits: ServerLimits = STANDARD) -> uvicorn.Server:
    """Return a server for an ASGI application; `run_server` starts it. The open-file limit bounds its connections."""
    _return_large_blocks()
    limits = replace(limits, connections=_affordable_connections(limits.connections))
    for name in _LOGGERS:
        throttle(logging.getLogger(name))
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_protocol_with(limits),
        backlog=max(1, min(_ACCEPTED_AT_ONCE, limits.connections // 8)),
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        timeout_graceful_shutdown=10,
    )
    return _Server(config)


def run_server(server: uvicorn.Server, *, sockets: list[socket.socket] | None = None) -> None:
    """Answer requests until Ctrl-C or SIGTERM. Exits with status 3 if the address is not available."""
    server.run(sockets=sockets)
    if not server.started:
        sys.exit(_STARTUP_FAILURE)


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._handle)
        await super().startup(sockets=sockets)
        for server in self.servers if self.started else ():
            for listening in server.sockets:
                with socket.socket(fileno=os.dup(listening.fileno())) as same:
                    same.listen(BACKLOG)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log the exception; if no file descriptor is left for a new connection, close waiting connections first."""
        if str(context.get("message", "")).startswith(_NO_DESCRIPTORS):
            bounded = [protocol for protocol in self.server_state.connections if isinstance(protocol, BoundedProtocol)]
            waiting = sorted((protocol for protocol in bounded if protocol.is_waiting), key=_since)
            for protocol in waiting[:_EVICTED_AT_ONCE]:
                protocol.expire()
        loop.default_exception_handler(context)


class BoundedProtocol(H11Protocol):
    """One connection, with a deadline while the server waits for the head or the body of a request."""

    limits = STANDARD

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.since = time.monotonic()
        self._phase: Phase | None = None
        self._is_upgraded = False
        self._clock: asyncio.TimerHandle | None = None
        self._write_clock: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being received or answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_slow(self) -> bool:
        """Whether the client has been sending a body for longer than `patience_seconds`."""
        return self._phase == "body" and time.monotonic() - self.since > self.limits.patience_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # the read size of asyncio, by default 256 KB per connection
            transport.max_size = _READ_BYTES
        self._enter("header")
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests at once. Try again in a second.")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.is_waiting and len(self.cycle.body) > _UNREAD_BYTES:
            self.flow.pause_reading()  # until the application has read the buffered part
        self._follow()

    def on_response_complete(self) -> None:
        self._enter(None)  # uvicorn's own keep-alive timeout covers the time between requests
        super().on_response_complete()
        self._follow(idle=True)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Leave the connection to the WebSocket protocol, which has its own timeouts."""
        super().handle_websocket_upgrade(event)
        self._enter(None)
        self._is_upgraded = True

    def send_400_response(self, msg: str) -> None:
        """Reject a request that is not valid HTTP, and keep an application that is reading the body from answering too."""
        error = sys.exc_info()[1]
        self._refuse(HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)), msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_clock = self._write_clock or self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(None)
        self._stop_write_clock()
        super().connection_lost(exc)

    def expire(self) -> None:
        """Close the connection, with a 408 response if the client was sending a request."""
        if self._phase is None:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not arrive in time. Send it again, faster.")

    def _follow(self, *, idle: bool = False) -> None:
        """Start the deadline of the phase that the connection is in now."""
        if self.transport.is_closing() or self._is_upgraded:
            self._enter(None)
        elif self.is_waiting:
            self._enter(None if idle else "header")
        else:
            self._enter("body" if self.cycle.more_body else None)

    def _enter(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return  # more bytes of the same phase don't reset the deadline, so a slow trickle can't hold a connection
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        self._phase = phase
        self.since = time.monotonic()
        if phase is not None:
            seconds = self.limits.header_seconds if phase == "header" else self.limits.body_seconds
            self._clock = self.loop.call_later(seconds, self.expire)

    def _make_room(self) -> bool:
        """Close the connection that has kept the server waiting for longest; return whether there was one."""
        others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
        waiting = [other for other in others if other.is_waiting] or [other for other in others if other.is_slow]
        if not waiting:
            return False
        oldest = min(waiting, key=_since)
        oldest.expire()
        self.connections.discard(oldest)
        return True

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Respond without the application and close the connection."""
        self._enter(None)
        started = self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not started and not self.transport.is_closing():
            body = message.encode()
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%s" % (status.value, status.phrase.encode(), len(body), body)
            )
        self.transport.close()

    def _stop_write_clock(self) -> None:
        if self._write_clock is not None:
            self._write_clock.cancel()
            self._write_clock = None


def _protocol_with(limits: ServerLimits) -> type[asyncio.Protocol]:
    return type("LimitedProtocol", (BoundedProtocol,), {"limits": limits})


def _affordable_connections(wanted: int) -> int:
    """Raise the open-file limit and return the number of connections that it allows; half of it is for other files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(_FEWEST, min(wanted, (soft - _open_files()) // 2))


def _return_large_blocks() -> None:
    """Make glibc return freed blocks of 128 KB and more to the system.

    By default it raises that threshold when the first large block is freed, and then keeps the memory of later bodies.
    """
    with suppress(OSError, AttributeError):  # other C libraries have no mallopt
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


def _since(protocol: BoundedProtocol) -> float:
    return protocol.since
