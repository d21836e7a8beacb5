"""What an engine says of a query that it can't answer, in a sentence and a next step."""

from __future__ import annotations

from headrace.errors import QueryError, UnavailableError


def failed(engine: str, said: str, *, where: str = "query") -> QueryError:
    """Return the error that a person can read of what an engine says: its first sentence, without full stop."""
    next_step = f"Fix the query. It is {engine}'s own SQL."
    return QueryError(f"{engine} can't answer it: {_first_line(said)}", where=where, next_step=next_step)


def unread(engine: str, said: str) -> UnavailableError:
    """Return the error of an engine that does not get at the files of a table."""
    return UnavailableError(
        f"{engine} can't read the warehouse: {_first_line(said)}",
        where="warehouse",
        next_step="Check that the object store runs, s3.endpoint and the keys to it; then ask again.",
    )


def _first_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else "it gave no reason"
