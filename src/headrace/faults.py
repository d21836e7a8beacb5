"""Places where an application can be made to die, for drills.

`HEADRACE_FAULT=kill-application@log` kills the application (SIGKILL) when it reaches the end of step `log`. Actions are
`kill-application`, `stop-application` (SIGSTOP), `kill-worker` and `fail-task`; places are the six steps, `writing`, which is
in the middle of step 4, and `committing`, which is in the middle of step 6: after the raw tables' commits and before the
quarantine's. A build of a layer table reaches `kept`, `staged` and `committed`, each with the table's name before it:
`kill-application@payments_db.customers:staged`. An erasure reaches `staged` and `erased` of each raw table, and `forget:noted`,
`landed`, `quarantined`, `built`, `published`, `purged` and `proved`. A replay reaches `staged`, `replayed` and `settled` of
each raw table, and `replay:landed` before it builds. The last two actions happen once: on the task's first attempt. A line on
the application's stderr announces each kill and stop.

`HEADRACE_FAULT=fail-message@TEXT` makes decoding fail, each time, whenever a message holds TEXT, as a value does that a decoder
has a bug with. `break-stream@TOPIC` makes writing a topic's rows fail, each time, as a full disk does. Several faults are
separated by commas. Unset, as always but in a drill, this costs one look at the environment.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Sequence

VARIABLE = "HEADRACE_FAULT"
_STDERR = 2


class InjectedError(RuntimeError):
    """What `fail-task` raises."""


def fault_point(place: str, *, driver_pid: int | None = None, attempt: int = 0) -> None:
    """Do what the environment asks for at this place; `driver_pid` is the application's process where a task calls."""
    for action, where in _faults():
        if where == place:
            _act(action, place, application=driver_pid or os.getpid(), attempt=attempt)


def reach_messages(values: Sequence[bytes | None]) -> None:
    """Raise a ValueError if a drill wants one of these messages to fail."""
    for action, text in _faults():
        if action == "fail-message" and any(value is not None and text.encode() in value for value in values):
            raise ValueError(f"a drill asked messages with {text} to fail")


def reach_topic(topic: str) -> None:
    """Raise an OSError if a drill wants a topic's rows not to be written."""
    for action, where in _faults():
        if action == "break-stream" and where == topic:
            raise OSError(errno.ENOSPC, f"a drill asked writing of {topic} to fail")


def _faults() -> Iterator[tuple[str, str]]:
    wanted = os.environ.get(VARIABLE)
    for fault in wanted.split(",") if wanted else ():
        action, _, where = fault.partition("@")
        yield action, where


def _act(action: str, place: str, *, application: int, attempt: int) -> None:
    if action == "kill-application":
        _announce(f"killing the application at step {place}", application)
        os.kill(application, signal.SIGKILL)
        signal.pause()
    elif action == "stop-application":
        _announce(f"stopping the application at step {place}", application)
        os.kill(application, signal.SIGSTOP)
    elif action == "kill-worker" and attempt == 0:
        _announce(f"killing a worker at step {place}", application)
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "fail-task" and attempt == 0:
        raise InjectedError(f"a drill asked this task to fail at {place}")


def _announce(sentence: str, application: int) -> None:
    """Print a line to the application's stderr, also from a worker, whose own stderr is Spark's log."""
    line = f"{VARIABLE}: {sentence}\n".encode()
    try:
        with open(f"/proc/{application}/fd/{_STDERR}", "ab", buffering=0) as stderr:
            stderr.write(line)
    except OSError:  # not on Linux, or stderr is a socket
        os.write(_STDERR, line)
