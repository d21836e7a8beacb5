"""Query tables with Trino, on the same catalog, through its Python client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from headrace.backoff import TRINO_NODES
from headrace.errors import QueryError, UnavailableError
from headrace.iceberg.rows.duck import quote_name
from headrace.servers.trino_catalog import CATALOG
from headrace.serving.sql.engines.failures import query_error
from headrace.serving.sql.engines.trino_values import make_column
from headrace.serving.sql.hidden_columns import drop_hidden, list_columns
from headrace.serving.sql.question import Question

if TYPE_CHECKING:
    from trino.client import TrinoQuery

_TIMEOUT_SECONDS = 30.0
_NO_NODES = "NO_NODES_AVAILABLE"


def check_client() -> None:
    """Raise a QueryError if Trino's client is not installed."""
    try:
        import trino.client  # noqa: F401
    except ImportError as error:
        raise QueryError(
            "Trino's Python client is not installed",
            where="--engine trino",
            next_step="Run: pip install 'headrace[trino]'   Other engines need nothing more.",
        ) from error


def ask(question: Question, *, url: str) -> pa.Table:
    """Return the result of one SELECT in Trino's SQL, from the Trino at `url`, without hidden columns."""
    check_client()
    from trino.exceptions import TrinoQueryError

    rewritten = rewrite(question).rstrip().rstrip(";")

    def has_no_nodes(error: Exception) -> bool:
        """Return whether Trino has just started, and has not registered itself as a node yet."""
        return isinstance(error, TrinoQueryError) and error.error_name == _NO_NODES

    try:
        columns, rows = TRINO_NODES.retry(lambda: _fetch(_query(rewritten, url=url), url=url), on=has_no_nodes)
    except TrinoQueryError as error:
        raise query_error("Trino", error.message, where=_place_of(error.error_location)) from error
    values: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    arrays = [make_column(column["typeSignature"], cells) for column, cells in zip(columns, values, strict=True)]
    return drop_hidden(pa.table(arrays, names=[column["name"] for column in columns]), question)


def rewrite(question: Question) -> str:
    """Return the query with the names, visible columns and snapshots of tables in Trino's SQL."""
    return list_columns(question, name=lambda mention: _quote(mention.table), quote=_quote_column, version="FOR VERSION AS OF")


def _query(sql: str, *, url: str) -> TrinoQuery:
    """Return a query that is not sent yet. Its values are read by `make_column`, which knows their Arrow types."""
    import requests
    from trino.client import ClientSession, TrinoQuery, TrinoRequest

    address = urlsplit(url)
    session = requests.Session()
    session.trust_env = False  # Trino runs on this machine: a proxy can't reach it
    request = TrinoRequest(
        host=address.hostname or "",
        port=address.port or 0,
        client_session=ClientSession(user="headrace", source="headrace query", catalog=CATALOG, timezone="UTC"),
        http_session=session,
        http_scheme=address.scheme,
        request_timeout=_TIMEOUT_SECONDS,
    )
    return TrinoQuery(request, sql, legacy_primitive_types=True)


def _fetch(query: TrinoQuery, *, url: str) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Run a query and return its columns and its rows. Raises a TrinoQueryError if Trino refuses the query."""
    import requests
    from trino.exceptions import HttpError, TrinoConnectionError

    try:
        rows = [*query.execute()]
        columns: list[dict[str, Any]] = query.columns or []
        return columns, rows
    except HttpError as error:
        raise QueryError(f"Trino rejected the request: {error}", where=url, next_step="See: headrace logs trino") from error
    except (TrinoConnectionError, requests.RequestException) as error:
        raise UnavailableError(f"{url} does not answer: {error}", next_step="Check that it runs: headrace status") from error


def _place_of(location: tuple[int, int] | None) -> str:
    """Return the line of an error. Rewritten names are longer, so the column would be wrong."""
    return f"query:{location[0]}" if location else "query"


def _quote(name: str) -> str:
    """Return a table's name in Trino: two parts, of which the first has all namespaces."""
    namespace, _, table = name.rpartition(".")
    return f"{quote_name(namespace)}.{quote_name(table)}"


def _quote_column(name: str) -> str:
    """Return a column's name in Trino, which is in lower case."""
    return quote_name(name.lower())
