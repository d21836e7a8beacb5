"""Handling of Trino's responses, with a fake server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from headrace.backoff import Backoff
from headrace.errors import QueryError, UnavailableError
from headrace.serving.sql.engines import trino
from headrace.serving.sql.question import read_question

NOBODY = {
    "error": {"message": "No nodes available to run query", "errorName": "NO_NODES_AVAILABLE", "errorType": "INTERNAL_ERROR"}
}
WRONG = {
    "error": {
        "message": "line 1:8: Column 'n' cannot be resolved",
        "errorName": "COLUMN_NOT_FOUND",
        "errorType": "USER_ERROR",
        "errorLocation": {"lineNumber": 1, "columnNumber": 8},
    }
}
TYPE = {"rawType": "bigint", "arguments": []}
ROWS = {
    "id": "1",
    "infoUri": "",
    "stats": {"state": "FINISHED"},
    "columns": [{"name": "n", "type": "bigint", "typeSignature": TYPE}],
    "data": [[1], [2]],
}
QUESTION = read_question("SELECT n FROM raw.orders", dialect="trino", known=["raw.orders"])


@contextmanager
def answering(*answers: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server that gives these answers in turn and repeats the last one, and the list of its requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            body = json.dumps(answers[min(len(asked), len(answers)) - 1]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


def test_query_is_retried_on_a_trino_that_has_just_started() -> None:
    with answering(NOBODY, ROWS) as (url, asked):
        assert trino.ask(QUESTION, url=url).to_pylist() == [{"n": 1}, {"n": 2}]
    assert asked == ['SELECT n FROM "raw"."orders"'] * 2


def test_trino_without_nodes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trino, "TRINO_NODES", Backoff(0.5, seconds=0.0))
    with answering(NOBODY) as (url, asked), pytest.raises(QueryError, match="No nodes available"):
        trino.ask(QUESTION, url=url)
    assert len(asked) == 1


def test_query_error_names_its_line() -> None:
    with answering(WRONG) as (url, _), pytest.raises(QueryError, match="Column 'n' cannot be resolved") as raised:
        trino.ask(QUESTION, url=url)
    assert raised.value.where == "query:1"


def test_missing_client_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trino.client", None)
    with pytest.raises(QueryError, match="Trino's Python client is not installed") as raised:
        trino.ask(QUESTION, url="http://127.0.0.1:1")
    assert raised.value.next_step.startswith("Run: pip install 'headrace[trino]'")


def test_trino_that_does_not_answer_is_an_outage() -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        trino.ask(QUESTION, url="http://127.0.0.1:1")
