"""A commit that happens once, whatever becomes of the catalog's answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import CompactedError, TakenOverError, UnavailableError

T = TypeVar("T")
_TRIES = 8
_FIRST_WAIT_SECONDS = 0.05


def commit_once(commit: Callable[[], T], *, find: Callable[[], T | None], where: str) -> T:
    """Gives back what `commit` gives back.

    After a conflict or a lost answer, `find` looks whether the commit came through and gives back its result; only if it gives
    back None is the commit tried again. `find` may raise a TakenOverError to give up, `commit` a CompactedError.
    """
    doubt: Exception | None = None
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
    raise UnavailableError(
        f"the catalog did not take a commit in {_TRIES} tries: {doubt}",
        where=where,
        next_step="Check that the catalog and the warehouse answer; it goes on by itself when they do.",
    ) from doubt
