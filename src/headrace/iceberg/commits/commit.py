"""Retry a commit so that it takes effect exactly once, also after a lost response."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import SQLAlchemyError

from headrace.backoff import COMMITS
from headrace.errors import CompactedError, TakenOverError, UnavailableError
from headrace.iceberg.catalog.outages import find_outage
from headrace.iceberg.commits.java_errors import is_conflict

T = TypeVar("T")
_OUTAGE_SECONDS = 10.0


def commit_once(commit: Callable[[], T], *, find: Callable[[], T | None], where: str) -> T:
    """Call `commit`, retry it after transient errors, and return its result.

    After a conflict or a lost response, `find` returns the result of a commit that took effect, or None: only then is the
    commit retried. `find` may raise a TakenOverError to give up, and `commit` a CompactedError. After the last attempt, a
    transient error is raised as an UnavailableError, and any other error unchanged.
    """
    began = time.monotonic()
    failures = count()

    def attempt() -> T:
        if next(failures) and (result := find()) is not None:
            return result
        return commit()

    def is_retried(error: Exception) -> bool:
        if isinstance(error, (TakenOverError, CompactedError)):
            return False
        # Java clients already retry for a minute: eight of their attempts would block the caller eight times as long.
        return time.monotonic() - began <= _OUTAGE_SECONDS or not find_outage(error)

    try:
        return COMMITS.retry(attempt, on=is_retried)
    except (TakenOverError, CompactedError):
        raise
    except Exception as failure:
        outage = find_outage(failure)
        if outage is not None:
            raise outage from failure
        if not _is_transient(failure):
            raise
        raise UnavailableError(
            f"the catalog accepted no commit in {COMMITS.attempts} attempts: {failure}",
            where=where,
            next_step="Headrace retries until the catalog and the warehouse are available. Check them with: headrace doctor",
        ) from failure


def _is_transient(error: Exception) -> bool:
    """Return whether an error comes from a concurrent commit, or from temporarily exhausted resources of the machine."""
    if isinstance(error, CommitFailedException | SQLAlchemyError) or is_conflict(error):
        return True
    return isinstance(error, OSError) and (error.errno is not None or isinstance(error, ConnectionError))
