"""What a failed Spark job means for landing."""

from __future__ import annotations

import re
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.errors import HeadraceError, LandingError, UnavailableError
from headrace.services.spark import explain_end

_LAST_LINE = re.compile(r"^(?P<name>[\w.]+(?:Error|Exception)): (?P<says>.*)$", re.MULTILINE)


def explain_failure(error: Py4JError, *, logs: Path) -> HeadraceError:
    """Gives back the error that a failed job is: worth trying again if a server was the reason, else the end of the run."""
    log = logs / "spark.log"
    if not isinstance(error, Py4JJavaError):
        return explain_end(logs)
    name, says = _python_error(str(error.java_exception))
    if name.rpartition(".")[2] == UnavailableError.__name__:
        return UnavailableError(
            f"a task could not go on: {says}", where=str(log), next_step="Check the servers with: headrace status"
        )
    return LandingError(
        f"a task failed again and again: {name}: {says}" if name else "a task failed again and again",
        where=str(log),
        next_step="Nothing was committed. Read the reason with: headrace logs spark",
    )


def _python_error(text: str) -> tuple[str, str]:
    """Gives back the name and the message of the Python error that a Java stack trace carries."""
    _, _, trace = text.partition("Traceback (most recent call last)")
    found = list(_LAST_LINE.finditer(trace))
    return (found[-1]["name"], found[-1]["says"]) if found else ("", "")
