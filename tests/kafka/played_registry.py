"""A fake schema registry with the Confluent API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import MappingProxyType
from typing import Any


class PlayedRegistry:
    """`answers` are by path; what is not among them is said not to be there. With another `status` it only says that, and no
    JSON. `asked` are paths and headers."""

    def __init__(self, answers: Mapping[str, object]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.url = ""
        self.status = 200

    def add(self, schema_id: int, schema: str) -> None:
        self.answers[f"/schemas/ids/{schema_id}"] = {"schema": schema}


@contextmanager
def play_registry(answers: Mapping[str, object] = MappingProxyType({})) -> Iterator[PlayedRegistry]:
    played = PlayedRegistry(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            played.asked.append((self.path, dict(self.headers)))
            answer = played.answers.get(self.path)
            missing = {"error_code": 40403, "message": "not found"}
            body = json.dumps(missing if answer is None else answer).encode()
            status = 404 if answer is None else 200
            if played.status != 200:
                status, body = played.status, b"<html>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    played.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
