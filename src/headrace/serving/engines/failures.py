"""What an engine says of a query that it can't answer, in a sentence and a next step."""

from __future__ import annotations

from headrace.errors import QueryError


def failed(engine: str, said: str, *, where: str = "query") -> QueryError:
    """Gives back the error that a person can read of what an engine says: its first sentence, without full stop."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else "it gave no reason"
    return QueryError(f"{engine} can't answer it: {reason}", where=where, next_step=f"Fix the query. It is {engine}'s own SQL.")
