"""For how long files that are written may wait for their commit."""

from __future__ import annotations

import time

from headrace.errors import OutdatedError
from headrace.settings import Settings

_AGAIN = "Nothing was committed. The same is done again by itself."


def check_in_time(settings: Settings, *, began: float, where: str, next_step: str = _AGAIN) -> None:
    """Refuse to commit what was begun too long ago (seconds since 1970): maintenance may be about to remove its files.

    A machine that slept in the middle of a batch is such a case. The batch is planned again, and nothing is lost. Who commits
    files calls this right before.
    """
    if time.time() - began > settings.maintain_grace_minutes * 60 / 2:
        raise OutdatedError(
            "its files were written so long ago that maintenance may have removed them",
            where=where,
            next_step=next_step,
        )
