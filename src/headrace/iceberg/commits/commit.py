"""A commit that happens once, whatever becomes of the catalog's answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import SQLAlchemyError

from headrace.errors import CompactedError, TakenOverError, UnavailableError
from headrace.iceberg.catalog.outages import find_away
from headrace.iceberg.commits.java_errors import is_conflict

T = TypeVar("T")
_TRIES = 8
_FIRST_WAIT_SECONDS = 0.05
_AWAY_SECONDS = 10.0


def commit_once(commit: Callable[[], T], *, find: Callable[[], T | None], where: str) -> T:
    """Return what `commit` and return.

    After a conflict or a lost answer, `find` looks whether the commit came through and returns its result; only if it gives
    back None is the commit tried again. `find` may raise a TakenOverError to give up, `commit` a CompactedError. What stands in
    the way after all tries is an UnavailableError where it may pass, and else the error that it is.
    """
    doubt: Exception | None = None
    began = time.monotonic()
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_FIRST_WAIT_SECONDS * 2**attempt)
        try:
            if doubt is not None:
                found = find()
                if found is not None:
                    return found
            return commit()
        except (TakenOverError, CompactedError):
            raise
        except Exception as error:
            doubt = error
            # Clients in Java try again for a minute by themselves: whoever waits for us must not wait eight times as long.
            if time.monotonic() - began > _AWAY_SECONDS and find_away(error):
                break
    assert doubt is not None
    away = find_away(doubt)
    if away is not None:
        raise away from doubt
    if not _may_pass(doubt):
        raise doubt
    raise UnavailableError(
        f"the catalog did not take a commit in {_TRIES} tries: {doubt}",
        where=where,
        next_step="Check that the catalog and the warehouse answer; it goes on by itself when they do.",
    ) from doubt


def _may_pass(doubt: Exception) -> bool:
    """Return whether an error comes from a concurrent commit, or from a machine without resources for the moment."""
    if isinstance(doubt, CommitFailedException | SQLAlchemyError) or is_conflict(doubt):
        return True
    return isinstance(doubt, OSError) and (doubt.errno is not None or isinstance(doubt, ConnectionError))
