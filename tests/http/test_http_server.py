"""Clients that hold idle connections do not block other clients."""

from __future__ import annotations

import logging
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from headrace.http.log_throttle import LogThrottle
from headrace.http.server import ServerLimits, make_server, run_server
from headrace.servers.ports import find_free_port, is_free
from tests.support.waiting import wait_until

WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nhost: x\r\nx-slow:"
HALF_BODY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nxx"
LONG = b"x" * 20_000_000
LIMITS = ServerLimits(connections=20, header_seconds=1.0, body_seconds=1.5, write_seconds=0.5, patience_seconds=0.2)
PATIENT = replace(LIMITS, header_seconds=600.0, body_seconds=600.0)
"""Deadlines that no test waits for: room for a request can only come from a connection that was ended to make it."""
TIMEOUT = 60.0


async def echo(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[dict[str, Any]], Any]) -> None:
    """Read the whole body, then respond; for /long with more than socket buffers hold."""
    while scope["type"] == "http":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LONG if scope["path"] == "/long" else b"ok", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(LIMITS) as number:
        yield number


@contextmanager
def serving(limits: ServerLimits) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = make_server(echo, limits=limits)
        server.config.lifespan = "off"
        thread = Thread(target=run_server, args=(server,), kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started, what="the server to listen")
        yield int(listening.getsockname()[1])
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def connect(port: int, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    client.sendall(sent)
    return client


def read_all(client: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := client.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def status_of(port: int, request: bytes) -> int:
    with connect(port, request) as client:
        status = re.match(rb"HTTP/1\.1 (\d+)", read_all(client))
        return int(status[1]) if status else 0


@contextmanager
def held(port: int, sent: bytes, *, number: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(port, sent)) for _ in range(number)]


def test_server_times_out_a_missing_header(port: int) -> None:
    started = time.monotonic()
    with connect(port, HALF) as client:

        def is_answered() -> bool:
            client.sendall(b"x")  # a byte now and then doesn't set the clock back
            return bool(select.select([client], [], [], 0.2)[0])

        wait_until(is_answered, what="the answer to half a header", seconds=TIMEOUT)
        assert b"408 Request Timeout" in read_all(client)
    assert time.monotonic() - started > 0.9


def test_server_closes_a_silent_connection(port: int) -> None:
    with connect(port) as client:
        assert b"408 Request Timeout" in read_all(client)


def test_server_times_out_the_second_request_of_a_connection(port: int) -> None:
    with connect(port, WHOLE.replace(b"connection: close\r\n", b"")) as client:
        assert client.recv(1_000).startswith(b"HTTP/1.1 200 OK")
        client.sendall(HALF)
        assert b"408 Request Timeout" in read_all(client)


def test_server_times_out_a_missing_body(port: int) -> None:
    assert status_of(port, HALF_BODY) == 408


@pytest.mark.parametrize("sent", [HALF, b"", HALF_BODY])
def test_server_answers_whole_requests_when_all_connections_are_held(sent: bytes) -> None:
    with serving(PATIENT) as port, held(port, sent, number=3 * PATIENT.connections):
        for _ in range(5):
            if sent == HALF_BODY:  # a client that has just begun to send a body is spared
                wait_until(lambda: status_of(port, WHOLE) == 200, what="a slow body to make room")
            else:
                assert status_of(port, WHOLE) == 200


def test_server_disconnects_a_client_that_does_not_read(port: int) -> None:
    with connect(port, b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n") as client:
        time.sleep(LIMITS.write_seconds + 0.5)
        assert len(read_all(client)) < len(LONG)


def test_server_refuses_a_long_header(port: int) -> None:
    assert status_of(port, b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"y" * 1_000_000 + b"\r\n\r\n") == 431


def test_server_refuses_a_malformed_body_without_a_traceback(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert status_of(port, b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nzz\r\n") == 400
    assert caplog.records == []


def test_log_lines_are_throttled_and_counted() -> None:
    now = 0.0
    log = LogThrottle(lines=2, seconds=60, clock=lambda: now)

    def write() -> str | None:
        record = logging.LogRecord("a", logging.WARNING, "", 1, "Invalid HTTP request received.", None, None)
        return record.getMessage() if log.filter(record) else None

    assert [write() is not None for _ in range(100)] == [True, True] + [False] * 98
    now = 61.0
    assert write() == "Invalid HTTP request received. (98 similar lines were dropped)"
    assert write() == "Invalid HTTP request received."


def test_half_sent_headers_under_a_low_open_file_limit(tmp_path: Path) -> None:
    """Run the receiver with fewer file descriptors than clients that hold a connection."""
    port, log = find_free_port(), tmp_path / "log"
    command = f'ulimit -n 64; exec "{sys.executable}" -m tests.support.webhook_server {port} {PATIENT.header_seconds}'
    with log.open("wb") as output:
        server = subprocess.Popen(["bash", "-c", command], stdout=output, stderr=output)
    try:
        wait_until(lambda: not is_free(port), what="the server", seconds=TIMEOUT)
        with held(port, HALF, number=300):
            for _ in range(3):
                assert status_of(port, WHOLE.replace(b"GET /", b"GET /health")) == 200
    finally:
        server.terminate()
        server.wait(20)
    assert log.stat().st_size < 100_000
