"""The HTTP gate before Connect and the registry: which requests it refuses, and which it forwards unchanged."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.http import gate
from headrace.http.client import ask
from headrace.http.local_requests import refuse_foreign
from headrace.servers.ports import find_free_port


class Echo(BaseHTTPRequestHandler):
    """A server that responds with the request and counts requests."""

    protocol_version = "HTTP/1.1"
    seen = 0

    def do_POST(self) -> None:
        type(self).seen += 1
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        echo = json.dumps({"path": self.path, "headers": dict(self.headers), "body": body.decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(echo)))
        self.end_headers()
        self.wfile.write(echo)

    do_GET = do_PUT = do_POST  # noqa: N815

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Echo.seen = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    port = find_free_port()
    gate.start(gate.listen(port), private_port=server.server_port, check=refuse_foreign, credentials="headrace:secret")
    yield port
    server.shutdown()


def exchange(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    return answer


def test_gate_forwards_the_body_and_adds_the_password(port: int) -> None:
    large = "x" * 300_000
    answer = ask(f"http://127.0.0.1:{port}/a?b=c", method="PUT", body={"k": large})
    assert answer.status == 200
    assert (answer.body["path"], json.loads(answer.body["body"])) == ("/a?b=c", {"k": large})
    assert answer.body["headers"]["Authorization"] == f"Basic {base64.b64encode(b'headrace:secret').decode()}"
    own = ask(f"http://me:mine@127.0.0.1:{port}/", method="POST")
    assert own.body["headers"]["Authorization"] == f"Basic {base64.b64encode(b'me:mine').decode()}", "it replaces none"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n", 421),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n", 403),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n", 415),
        (b"GET / HTTP/1.1\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n", 400),
        (b"GET / HTTP/1.0\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1@evil.example\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1.\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\nHost: evil.example\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n folded: x\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"nonsense\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000 + b"\r\n", 431),
    ],
)
def test_gate_does_not_forward_a_refused_request(port: int, head: bytes, status: int) -> None:
    answer = exchange(port, head + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert Echo.seen == 0


def test_gate_checks_every_request_of_a_connection(port: int) -> None:
    first = b"GET /first HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = exchange(port, first + b"POST /second HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 1
    assert Echo.seen == 1


def test_gate_answers_503_without_its_server() -> None:
    port = find_free_port()
    gate.start(gate.listen(port), private_port=find_free_port(), check=refuse_foreign, credentials=None)
    answer = ask(f"http://127.0.0.1:{port}/")
    assert (answer.status, answer.body["error_code"]) == (503, 503)
