"""scripts/pin_images.py against a registry on this machine: digests are asked for with a token, and written beside tags."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "pin_images.py"
DIGEST = "sha256:" + "a1" * 32
OTHER = "sha256:" + "b2" * 32


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pin_images", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pin_images = load()


class Registry(BaseHTTPRequestHandler):
    """Answers as a registry does that gives tokens to anybody."""

    def do_GET(self) -> None:
        assert self.path == "/token?service=here&scope=repository%3Alibrary%2Fthing%3Apull"
        self._answer(200, body=json.dumps({"token": "t0ken"}).encode())

    def do_HEAD(self) -> None:
        realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
        if self.headers.get("Authorization") != "Bearer t0ken":
            challenge = f'Bearer realm="{realm}",service="here",scope="repository:library/thing:pull"'
            self._answer(401, {"WWW-Authenticate": challenge})
        elif self.path == "/v2/library/thing/manifests/1.0" and "image.index" in self.headers["Accept"]:
            self._answer(200, {"Docker-Content-Digest": DIGEST})
        elif self.path.endswith("/none"):
            self._answer(200)
        else:
            self._answer(404)

    def _answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_digest_is_asked_for_with_a_token(registry: str) -> None:
    def at(name: str) -> tuple[str, str]:
        return registry, f"library/{name}"

    assert pin_images.ask_registry("thing", "1.0", at=at) == DIGEST
    with pytest.raises(OSError, match="404"):
        pin_images.ask_registry("thing", "2.0", at=at)
    with pytest.raises(ValueError, match="gave no sha256 digest"):
        pin_images.ask_registry("thing", "none", at=at)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("postgres", ("https://registry-1.docker.io", "library/postgres")),
        ("apache/kafka", ("https://registry-1.docker.io", "apache/kafka")),
        ("quay.io/debezium/connect", ("https://quay.io", "debezium/connect")),
    ],
)
def test_names_are_read_as_docker_reads_them(name: str, place: tuple[str, str]) -> None:
    assert pin_images.locate(name) == place


def test_images_are_pinned_and_what_is_built_here_stays() -> None:
    text = (
        f"    image: thing:1.0\n    image: quay.io/a/b:2.Final@{OTHER}\n    image: headrace:0.1.0\n"
        "FROM thing:1.0 AS java\nFROM headrace AS dagster\nCOPY --from=java /a /b\n"
    )
    assert pin_images.find_unpinned(text) == ["thing:1.0", "thing:1.0"]
    assert pin_images.pin(text, lambda name, tag: DIGEST) == (
        f"    image: thing:1.0@{DIGEST}\n    image: quay.io/a/b:2.Final@{DIGEST}\n    image: headrace:0.1.0\n"
        f"FROM thing:1.0@{DIGEST} AS java\nFROM headrace AS dagster\nCOPY --from=java /a /b\n"
    )
    assert pin_images.find_unpinned(pin_images.pin(text, lambda name, tag: DIGEST)) == []
