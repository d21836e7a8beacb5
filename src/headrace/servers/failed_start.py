"""Explain why a server ended during its start, from its log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServiceError

PORT_TAKEN = "its port is taken"
_ENDED = "it ended during its start"
_AGAIN = "Run the command again"


@dataclass(frozen=True)
class Sign:
    """A cause of failed starts: a pattern in the log, what is wrong, and what to do next."""

    pattern: str
    what: str
    next_step: str


DISK_FULL = Sign(
    "No space left on device", "the disk is full", "Free some space, or set HEADRACE_HOME to a folder on another disk."
)


def port_taken(variable: str, *, also: str = "BindException") -> Sign:
    """Return the sign of a taken port. `variable` sets the server's port; `also` is another pattern of its log."""
    return Sign(f"Address already in use|{also}", PORT_TAKEN, f"{_AGAIN}, or choose a port: {variable}=<number>")


def no_memory(need: str, *, pattern: str = "OutOfMemoryError|Could not reserve enough space") -> Sign:
    """Return the sign of too little memory. `need` says how much the server takes."""
    return Sign(pattern, "not enough memory", f"End other programs: {need}.")


def signs_in_stack(name: str, *, memory_mb: int) -> tuple[Sign, ...]:
    """Return the signs of a server of the stack, whose port and log belong to the profile."""
    return (
        Sign("Address already in use|BindException", PORT_TAKEN, f"{_AGAIN}."),
        no_memory(f"it takes up to {memory_mb} MB"),
        Sign("", _ENDED, f"Read the log: headrace --profile stack logs {name}"),
    )


def explain_failure(name: str, title: str, text: str, *, signs: Sequence[Sign], log: Path) -> ServiceError:
    """Return the error for a server that ended during its start: the first sign in its log, with the line of the reason."""
    ended = Sign("", _ENDED, f"Read the log: headrace logs {name}")
    sign = next(sign for sign in (*signs, ended) if re.search(sign.pattern, text))
    what = f"{title} did not start: {sign.what} ({find_error_line(text)})"
    return ServiceError(what, where=str(log), next_step=sign.next_step)


def find_error_line(text: str) -> str:
    """Return the line of a log that most likely has the reason of a failure: the last cause, else error, else line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "... ", "headrace: "))]
    for sign in (r"^Caused by:", r"Exception|Error:", r"\b(FATAL|ERROR)\b"):
        matches = [line for line in telling if re.search(sign, line)]
        if matches:
            return matches[-1][:300]
    return telling[-1][:300] if telling else "its log is empty"
