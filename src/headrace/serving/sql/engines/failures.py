"""Translate an engine's error about a query to a message and a next step."""

from __future__ import annotations

from headrace.errors import QueryError, UnavailableError


def query_error(engine: str, message: str, *, where: str = "query") -> QueryError:
    """Return a QueryError with the first line of an engine's message."""
    next_step = f"Fix the query. It must be in {engine}'s SQL dialect."
    return QueryError(f"{engine} rejected the query: {_first_line(message)}", where=where, next_step=next_step)


def storage_error(engine: str, message: str) -> UnavailableError:
    """Return the error of an engine that can't read the files of a table."""
    return UnavailableError(
        f"{engine} can't read the warehouse: {_first_line(message)}",
        where="warehouse",
        next_step="Check that the object store runs, s3.endpoint and its keys; then run the query again.",
    )


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else "no reason given"
