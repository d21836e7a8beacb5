"""Places where an application can be made to die, for drills.

`HEADRACE_FAULT=kill-application@log` kills the application (SIGKILL) when it reaches the end of step `log`. Actions are
`kill-application`, `stop-application` (SIGSTOP), `kill-worker` and `fail-task`; places are the six steps, `writing`, which is
in the middle of step 4, and `committing`, which is in the middle of step 6: after the raw tables' commits and before the
quarantine's. A build of a layer table reaches `kept`, `staged` and `committed`, each with the table's name before it:
`kill-application@payments_db.customers:staged`. An erasure reaches `staged` and `erased` of each raw table, and `forget:noted`,
`landed`, `quarantined`, `built`, `published`, `purged` and `proved`. A replay reaches `staged`, `replayed` and `settled` of
each raw table, and `replay:landed` before it builds. The last two actions happen once: on the task's first attempt. Unset, as
always but in a drill, this costs one look at the environment.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "HEADRACE_FAULT"


class InjectedError(RuntimeError):
    """What `fail-task` raises."""


def reach(place: str, *, driver_pid: int | None = None, attempt: int = 0) -> None:
    """Does what the environment asks for at this place; `driver_pid` is the application's process where a task calls."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    action, _, where = wanted.partition("@")
    if where != place:
        return
    application = driver_pid or os.getpid()
    if action == "kill-application":
        os.kill(application, signal.SIGKILL)
        signal.pause()
    elif action == "stop-application":
        os.kill(application, signal.SIGSTOP)
    elif action == "kill-worker" and attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "fail-task" and attempt == 0:
        raise InjectedError(f"a drill asked this task to fail at {place}")
