"""For how long files that are written may wait for their commit."""

from __future__ import annotations

import time

from headrace.errors import RetryableError
from headrace.settings import Settings


def check_in_time(settings: Settings, *, began: float, where: str) -> None:
    """Refuses to commit what was begun too long ago (seconds since 1970): maintenance may be about to remove its files.

    A machine that slept in the middle of a batch is such a case. The batch is planned again, and nothing is lost.
    """
    if time.time() - began > settings.maintain_grace_minutes * 60 / 2:
        raise RetryableError(
            "its files were written so long ago that maintenance may have removed them",
            where=where,
            next_step="Nothing was committed. The same is done again by itself.",
        )
