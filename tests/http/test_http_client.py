"""The HTTP client: statuses, logins, redirects, proxies, and servers that do not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headrace.errors import UnavailableError
from headrace.http import client
from headrace.http.client import ask, is_fine


class Handler(BaseHTTPRequestHandler):
    """Returns the request as JSON, with the path's number as the status."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/200")
            self.end_headers()
            return
        if self.path == "/silent":
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length", 0))
        request = {
            "method": self.command,
            "type": self.headers.get("Content-Type"),
            "login": self.headers.get("Authorization"),
            "body": self.rfile.read(length).decode(),
        }
        self.send_response(int(self.path.lstrip("/")))
        content = json.dumps(request).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_ask_sends_json_and_the_login_of_the_url(address: str) -> None:
    answer = ask(f"http://me:s%40fe@{address}/201", method="POST", body={"k": 1})
    assert answer.body == {"method": "POST", "type": "application/json", "login": "Basic bWU6c0BmZQ==", "body": '{"k": 1}'}
    assert (answer.status, answer.is_fine) == (201, True)


def test_ask_returns_refusals(address: str) -> None:
    assert ask(f"http://{address}/503").status == 503
    assert not is_fine(f"http://{address}/503", timeout=5.0)


def test_ask_follows_redirects(address: str) -> None:
    assert ask(f"http://{address}/moved").status == 200


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_ask_bypasses_proxies_on_this_machine(address: str, variable: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    assert ask(f"http://{address.replace('127.0.0.1', host)}/200").status == 200


def test_ask_uses_proxies_for_other_hosts(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"registry\.example/subjects does not answer: .*refused"):
        ask("http://registry.example/subjects")


@pytest.mark.parametrize("path", ["silent", "200"])
def test_ask_raises_if_there_is_no_answer(address: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LONGEST", 10)
    with pytest.raises(UnavailableError, match=rf"http://{address}/{path} does not answer: \w+"):
        ask(f"http://me:hidden@{address}/{path}?token=hidden")


@pytest.mark.parametrize("url", ["http://127.0.0.1:x/", "nothing", "ftp://127.0.0.1/"])
def test_ask_raises_on_an_invalid_url(url: str) -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        ask(url)
