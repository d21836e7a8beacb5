"""The maximum age of written files at their commit."""

from __future__ import annotations

import time

from headrace.errors import OutdatedError
from headrace.settings import Settings

_AGAIN = "Nothing was committed. Headrace retries it with new files."


def check_in_time(settings: Settings, *, began: float, where: str, next_step: str = _AGAIN) -> None:
    """Raise an OutdatedError for work that began too long ago (seconds since 1970): maintenance may be removing its files.

    This happens when a machine sleeps in the middle of a batch. Call it right before committing files; plan the batch again
    after the error.
    """
    if time.time() - began > settings.maintain_grace_minutes * 60 / 2:
        raise OutdatedError(
            "its files were written too long ago: maintenance may have removed them as orphan files",
            where=where,
            next_step=next_step,
        )
