"""Query tables with Trino, on the same catalog, over its HTTP API with pages of JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.errors import QueryError
from headrace.http.client import Answer
from headrace.http.client import ask as ask_server
from headrace.iceberg.rows.duck import quote_name
from headrace.servers.trino_catalog import CATALOG
from headrace.serving.sql.engines.failures import query_error
from headrace.serving.sql.engines.trino_values import make_column
from headrace.serving.sql.hidden_columns import drop_hidden, list_columns
from headrace.serving.sql.question import Question

_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "X-Trino-User": "headrace",
    "X-Trino-Source": "headrace query",
    "X-Trino-Catalog": CATALOG,
    "X-Trino-Time-Zone": "UTC",
    "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",  # without it times have only milliseconds
}

TIMEOUT_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
_NO_NODES = "NO_NODES_AVAILABLE"


def ask(question: Question, *, url: str) -> pa.Table:
    """Return the result of one SELECT in Trino's SQL, from the Trino at `url`, without hidden columns."""
    rewritten = list_columns(question, name=lambda mention: _quote(mention.table), quote=_quote_column).rstrip().rstrip(";")
    columns: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for page in _pages(url, rewritten):
        columns = page.get("columns") or columns
        rows += page.get("data") or []
    values: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    arrays = [make_column(column["typeSignature"], cells) for column, cells in zip(columns, values, strict=True)]
    return drop_hidden(pa.table(arrays, names=[column["name"] for column in columns]), question)


def _pages(url: str, sql: str) -> Iterator[dict[str, Any]]:
    """Yield the pages of a result. Raises a QueryError if Trino reports an error.

    A Trino that has just started may not have registered itself as a node yet; until then, retries the query.
    """
    answer = _send(url, sql)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        if not answer.is_fine:
            raise QueryError(f"Trino rejected the request: {answer.message}", where=url, next_step="See: headrace logs trino")
        page: dict[str, Any] = answer.body
        if "error" in page:
            if page["error"].get("errorName") == _NO_NODES and time.monotonic() < deadline:
                time.sleep(_PAUSE_SECONDS)
                answer = _send(url, sql)
                continue
            raise query_error("Trino", str(page["error"].get("message", "")), where=_place_of(page["error"]))
        yield page
        if "nextUri" not in page:
            return
        answer = ask_server(page["nextUri"], headers=_HEADERS)


def _send(url: str, sql: str) -> Answer:
    return ask_server(f"{url}/v1/statement", method="POST", body=sql.encode(), headers=_HEADERS)


def _place_of(error: dict[str, Any]) -> str:
    """Return the line of an error. Rewritten names are longer, so the column would be wrong."""
    place = error.get("errorLocation")
    return f"query:{place['lineNumber']}" if place else "query"


def _quote(name: str) -> str:
    """Return a table's name in Trino: two parts, of which the first has all namespaces."""
    namespace, _, table = name.rpartition(".")
    return f"{quote_name(namespace)}.{quote_name(table)}"


def _quote_column(name: str) -> str:
    """Return a column's name in Trino, which is in lower case."""
    return quote_name(name.lower())
