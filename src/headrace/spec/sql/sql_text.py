"""Normalise SQL, so that texts that differ only in formatting or comments are equal."""

from __future__ import annotations

import functools


@functools.lru_cache(maxsize=4096)
def without_comments(sql: str) -> str:
    """Return a query in sqlglot's formatting. Cached, because status checks call it every few seconds."""
    import sqlglot

    return sqlglot.parse_one(sql, dialect="spark").sql(dialect="spark", comments=False)


def condition_without_comments(condition: str) -> str:
    """Return a condition in sqlglot's formatting, or its stripped text if only Spark can parse it."""
    from sqlglot.errors import SqlglotError

    try:
        return without_comments(condition)
    except SqlglotError:
        return condition.strip()
