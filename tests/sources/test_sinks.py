"""Generators that send over HTTP: no event is lost during an outage, and refusals are reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.app.receiving import generate_missing_secrets
from headrace.errors import SettingsError, UnavailableError
from headrace.sources.sinks import HttpSink, to_receiver, to_webhook
from headrace.spec.model.pipeline import Method, Receiver
from tests.support.webhooks import commerce

TO_TAKE = to_receiver(Receiver("take", "/take", "GET", "things"))


class Server(ThreadingHTTPServer):
    """Refuses every third request with 503, and the name "bad" with 422; collects the names of all others."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.asked, self.names = Lock(), 0, list[str]()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.answer(parse_qs(urlsplit(self.path).query)["name"][0])

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["name"])

    def answer(self, name: str) -> None:
        with self.server.lock:
            self.server.asked += 1
            status = 422 if name == "bad" else 503 if self.server.asked % 3 == 0 else 200
            if status == 200:
                self.server.names.append(name)
        body = b"why not"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_http_sink_retries_unaccepted_events(server: Server, method: Method) -> None:
    sink = HttpSink(server.address, to_receiver(Receiver("take", "/take", method, "things")), is_stopped=lambda: False)
    names = [f"nämé & {number}" for number in range(50)]
    for number, name in enumerate(names):
        sink.send({"name": name}, number=number)
    sink.finish(len(names))
    assert sorted(server.names) == sorted(names)
    assert server.asked > len(names)


def test_http_sink_raises_on_a_refused_event(server: Server) -> None:
    sink = HttpSink(server.address, TO_TAKE, is_stopped=lambda: False)
    sink.send({"name": "bad"}, number=0)
    with pytest.raises(UnavailableError, match="refused an event with 422: why not") as caught:
        sink.finish(1)
    assert caught.value.where == f"{server.address}/take"
    assert sink.has_failed()


def test_http_sink_stops_during_an_outage() -> None:
    sink = HttpSink("http://127.0.0.1:1", TO_TAKE, is_stopped=lambda: True)
    sink.send({"name": "x"}, number=0)
    with pytest.raises(UnavailableError, match="did not accept an event"):
        sink.finish(1)


def test_to_webhook_needs_a_secret() -> None:
    pipeline = commerce()
    assert pipeline.http is not None
    webhook = pipeline.http.webhooks[0]
    with pytest.raises(SettingsError, match="webhooks need a secret, and none is set") as caught:
        to_webhook(webhook, "http://127.0.0.1:1", environ={webhook.secret: " "})
    assert f"export {webhook.secret}=" in caught.value.next_step
    secrets = generate_missing_secrets(pipeline, {webhook.secret: "mine"})
    assert set(secrets) == {webhook.secret for webhook in pipeline.http.webhooks} - {webhook.secret}
    assert len({*secrets.values()}) == 2
    assert min(map(len, secrets.values())) == 64
