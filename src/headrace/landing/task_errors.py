"""What a failed Spark job means for landing."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.errors import HeadraceError, LandingError, UnavailableError
from headrace.iceberg.catalog.outages import find_away
from headrace.landing.batch import TaskFailure
from headrace.spark.session import explain_end

_REASON_CHARACTERS = 500
_CAUSE = re.compile(r"^(?:Caused by: )?(?!org\.apache\.spark\.SparkException: Job aborted)[\w.$]+(?:Error|Exception): ")
_ENDED = re.compile(r"SparkContext (?:was shut down|has been shut down)|stopped SparkContext", re.IGNORECASE)
_LAST_LINE = re.compile(r"^(?P<name>[\w.]+(?:Error|Exception)): (?P<says>.*)$", re.MULTILINE)


def explain_failure(error: Py4JError, *, logs: Path) -> HeadraceError:
    """Return the error that a failed job is: worth trying again if a server was the reason, else the end of the run."""
    log = logs / "spark.log"
    if not isinstance(error, Py4JJavaError) or _ENDED.search(str(error.java_exception)):
        return explain_end(logs)
    name, says = _python_error(str(error.java_exception))
    if name.rpartition(".")[2] == UnavailableError.__name__:
        return UnavailableError(
            f"a task could not go on: {says}", where=str(log), next_step="Check the servers with: headrace status"
        )
    return LandingError(
        f"{name}: {says}" if name else _java_error(str(error.java_exception)),
        where=str(log),
        next_step="Nothing was committed. Read the whole reason with: headrace logs spark",
    )


def describe_failure(error: BaseException | None, *, hide: Callable[[str], str]) -> TaskFailure:
    """Describe for the driver an error that ended a stream's part of a task; `hide` removes secrets from a text."""
    assert error is not None
    away = find_away(error)
    trace = hide("".join(traceback.format_exception(error)))
    if away is not None:
        return TaskFailure(hide(f"{away.where}: {away.what}" if away.where else away.what), trace, unavailable=True)
    said = str(error).partition("\n")[0] if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return TaskFailure(hide(" ".join(said.split()))[:_REASON_CHARACTERS], trace)


def error_of(failure: TaskFailure, *, label: str) -> HeadraceError:
    """Return the error that a stream's failure is on the driver: worth trying again at once if a server is away."""
    if failure.unavailable:
        return UnavailableError(
            f"a task could not go on: {failure.what}", where=label, next_step="Check the servers with: headrace status"
        )
    return LandingError(
        failure.what,
        where=label,
        next_step="Nothing of the failed try was committed. Read the traceback with: headrace logs landing",
    )


def _python_error(text: str) -> tuple[str, str]:
    """Return the name and the message of the Python error that a Java stack trace carries."""
    _, _, trace = text.partition("Traceback (most recent call last)")
    found = list(_LAST_LINE.finditer(trace))
    return (found[-1]["name"], found[-1]["says"]) if found else ("", "")


def _java_error(text: str) -> str:
    """Return the reason that Spark gives for a job that failed without an error of Python's, such as a worker that died."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if _CAUSE.match(line)] or lines
    return reasons[0][:_REASON_CHARACTERS] if reasons else "a task failed, and Spark does not say why"
