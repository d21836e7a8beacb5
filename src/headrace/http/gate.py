"""An HTTP gate before a server that checks neither `Host` nor `Origin` (Kafka Connect, the registry).

It listens on the server's public port, applies the rule of local_requests.py to every request, and passes the rest to the
server's private port. Each connection carries one request: the proxy sends `Connection: close`, so nothing that follows the
first request can slip past the check. The private port asks for a password in turn.

Standard library only: the server's watchdog runs it, without Headrace's packages.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.http.local_requests import Refusal

HOST = "127.0.0.1"
MAX_CONNECTIONS = 512
_HEAD_BYTES = 64 * 1024
_HEAD_SECONDS = 10.0
_CHUNK = 64 * 1024
_PER_CONNECTION = frozenset({"connection", "keep-alive", "proxy-connection", "upgrade"})

Check = Callable[[str, Mapping[str, str]], "Refusal | None"]


class BadHeadError(ValueError):
    """The gate and the server might parse the head of this request differently."""


def listen(port: int) -> socket.socket:
    """Return a socket that listens on a loopback port. Raises an OSError if the port is taken."""
    return socket.create_server((HOST, port), backlog=MAX_CONNECTIONS)


def start(listener: socket.socket, *, private_port: int, check: Check, credentials: str | None) -> None:
    """Serve in a separate thread. Adds `credentials` (`user:password`) to requests without any."""
    login = f"Basic {base64.b64encode(credentials.encode()).decode()}" if credentials else None
    gate = _Gate(private_port, check, login)
    threading.Thread(target=lambda: asyncio.run(gate.serve(listener)), name="gate", daemon=True).start()


class _Gate:
    def __init__(self, private_port: int, check: Check, login: str | None) -> None:
        self._private_port = private_port
        self._check = check
        self._login = login
        self._open = 0

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._handle, sock=listener, limit=_HEAD_BYTES)
        async with server:
            await server.serve_forever()

    async def _handle(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > MAX_CONNECTIONS:
                _refuse(answer, 503, "too many connections", "Close some, then try again.")
            else:
                await self._pass_on(client, answer)
            await answer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two sides closed the connection
        finally:
            self._open -= 1
            answer.close()

    async def _pass_on(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(client.readuntil(b"\r\n\r\n"), _HEAD_SECONDS)
            request, headers = split_head(head)
        except asyncio.TimeoutError:
            return _refuse(answer, 408, "the request's headers did not arrive in time", "Send it again.")
        except asyncio.LimitOverrunError:
            return _refuse(answer, 431, f"the request's headers are longer than {_HEAD_BYTES} bytes", "Send fewer.")
        except BadHeadError as error:
            return _refuse(answer, 400, str(error), "Fix the request.")
        by_name = {name.lower(): value for name, value in headers}
        refusal = self._check(request.split(" ", 1)[0], by_name)
        if refusal is not None:
            return _refuse(answer, refusal.status, refusal.what, refusal.next_step)
        try:
            server, to_server = await asyncio.open_connection(HOST, self._private_port)
        except OSError:
            return _refuse(answer, 503, "the server behind this port does not answer", "Run: headrace status")
        forwarded = [(name, value) for name, value in headers if name.lower() not in _PER_CONNECTION]
        forwarded.append(("Connection", "close"))
        if self._login is not None and "authorization" not in by_name:
            forwarded.append(("Authorization", self._login))
        lines = (request, *(f"{name}: {value}" for name, value in forwarded), "", "")
        to_server.write("\r\n".join(lines).encode("latin-1"))
        sending = asyncio.ensure_future(_copy(client, to_server))
        try:
            await _copy(server, answer)
        finally:
            sending.cancel()
            to_server.close()
            await asyncio.gather(sending, return_exceptions=True)


def split_head(head: bytes) -> tuple[str, list[tuple[str, str]]]:
    """Return the request line and the headers. Raises a BadHeadError for a head that servers may parse in different ways."""
    request, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    if request.count(" ") != 2 or not request.rpartition(" ")[2].startswith("HTTP/1."):
        raise BadHeadError("the request line is not of HTTP/1.1")
    if not request.split(" ")[1].startswith(("/", "*")):
        raise BadHeadError("the request names a host before its path")  # servers use it instead of the Host header
    if any(sign in line for line in (request, *lines) for sign in "\r\n\0"):
        raise BadHeadError("a header holds a line break or a null")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadHeadError("a header has no name, or space around it")
        headers.append((name, value.strip(" \t")))
    names = [name.lower() for name, _ in headers]
    if names.count("host") != 1:
        raise BadHeadError("a request needs exactly one Host header")
    if names.count("content-length") + names.count("transfer-encoding") > 1:
        raise BadHeadError("the length of the body is stated twice")
    return request, headers


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK):
        target.write(chunk)
        await target.drain()


def _refuse(answer: asyncio.StreamWriter, status: int, what: str, next_step: str) -> None:
    body = json.dumps({"error_code": status, "message": f"{what}. {next_step}"}).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    answer.write(head.encode("ascii") + body)
