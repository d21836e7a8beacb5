"""The HTTP server that `serve`, `receive` and the seeder share: uvicorn, with limits on connections, time and log lines.

uvicorn waits for ever for the rest of a request, and for a client that doesn't read its answer. Here every phase of a
connection has a deadline. When there are as many connections as there may be, the one that has kept the server waiting for
longest makes room, so that clients who send whole requests are answered however many others only hold a connection.
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
"""asyncio accepts at most so many before it looks at anything else, and where no descriptor is left it logs as many errors. It
takes the same number for the backlog, which is set again afterwards."""
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
"""What one connection may hold of a body that its application has not taken: with 512 of them, 24 MB, and not 160."""

Phase = Literal["header", "body"]


@dataclass(frozen=True)
class ServerLimits:
    """How many connections there may be, and how long a client may take for the parts of one request.

    `body_seconds` is longer than what an application itself allows for a body, which explains better. `patience_seconds` is for
    how long a client that sends a body is spared when others need its place.
    """

    connections: int = 512
    header_seconds: float = 10.0
    body_seconds: float = 45.0
    write_seconds: float = 30.0
    patience_seconds: float = 1.0


STANDARD = ServerLimits()


def make_server(app: Any, *, host: str = "127.0.0.1", port: int = 0, limits: ServerLimits = STANDARD) -> uvicorn.Server:
    """Return a server for an ASGI application, which `run` starts. Its number of connections fits the open-file limit."""
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
    """Answer requests until Ctrl-C or SIGTERM; exit where the address can't be had."""
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
        """Make room where no file descriptor is left for a new connection; log it, and everything else."""
        if str(context.get("message", "")).startswith(_NO_DESCRIPTORS):
            waiting = [each for each in self.server_state.connections if isinstance(each, BoundedProtocol)]
            for protocol in sorted((each for each in waiting if each.is_waiting), key=_since)[:_EVICTED_AT_ONCE]:
                protocol.expire()
        loop.default_exception_handler(context)


class BoundedProtocol(H11Protocol):
    """One connection. A clock runs while the server waits for the head or the body of a request."""

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
        """Whether a body has been coming for longer than a client is spared."""
        return self._phase == "body" and time.monotonic() - self.since > self.limits.patience_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # how much asyncio reads at a time, 256 KB for each connection otherwise
            transport.max_size = _READ_BYTES
        self._enter("header")
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "Too many requests at once. Try again in a second.")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.is_waiting and len(self.cycle.body) > _UNREAD_BYTES:
            self.flow.pause_reading()  # until the application takes what is here
        self._follow()

    def on_response_complete(self) -> None:
        self._enter(None)  # uvicorn's own clock runs between two requests
        super().on_response_complete()
        self._follow(idle=True)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Leave the connection to the protocol of web sockets, which has clocks of its own."""
        super().handle_websocket_upgrade(event)
        self._enter(None)
        self._is_upgraded = True

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. The application may be reading the body: it must not answer, too."""
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
        """End the connection; a client that was sending a request hears why."""
        if self._phase is None:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not come in time. Send it again, faster.")

    def _follow(self, *, idle: bool = False) -> None:
        """Set the clock to what the server now waits for."""
        if self.transport.is_closing() or self._is_upgraded:
            self._enter(None)
        elif self.is_waiting:
            self._enter(None if idle else "header")
        else:
            self._enter("body" if self.cycle.more_body else None)

    def _enter(self, phase: Phase | None) -> None:
        if phase == self._phase:
            return  # more of the same doesn't set the clock back: a byte now and then keeps no connection open
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        self._phase = phase
        self.since = time.monotonic()
        if phase is not None:
            seconds = self.limits.header_seconds if phase == "header" else self.limits.body_seconds
            self._clock = self.loop.call_later(seconds, self.expire)

    def _make_room(self) -> bool:
        """End the connection that has kept the server waiting for longest; return whether there was one."""
        others = [each for each in self.connections if isinstance(each, BoundedProtocol) and each is not self]
        waiting = [each for each in others if each.is_waiting] or [each for each in others if each.is_slow]
        if not waiting:
            return False
        oldest = min(waiting, key=_since)
        oldest.expire()
        self.connections.discard(oldest)
        return True

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer without the application and close the connection."""
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
    """Return how many connections the open-file limit allows, raised as far as it may be; half of it is for other files."""
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
    """Have glibc give blocks of 128 KB and more back to the system when they are freed.

    By default it raises that size with the first large block that is freed, and keeps the memory of later bodies in its heap.
    """
    with suppress(OSError, AttributeError):  # another C library has no mallopt
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


def _since(protocol: BoundedProtocol) -> float:
    return protocol.since
