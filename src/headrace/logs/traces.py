"""Tracebacks without the messages of their exceptions, which may quote rows."""

from __future__ import annotations

import re

_BEGIN = "Traceback (most recent call last):"
_TYPE = re.compile(r"[A-Za-z_][\w.]*")
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


def without_messages(trace: str) -> str:
    """Return a traceback with its files, lines and types of exceptions alone.

    A message may have any number of lines. What follows a type is left out up to the next traceback of the chain.
    """
    lines: list[str] = []
    in_frames = False
    for line in trace.splitlines():
        if line == _BEGIN:
            in_frames = True
            lines.append(line)
        elif in_frames and line.startswith("  "):
            lines.append(line)
        elif in_frames:
            in_frames = False
            error_line = _TYPE.match(line)
            lines += [error_line[0]] if error_line else []
        elif line in _LINKS:
            lines.append(line)
    return "\n".join(lines)
