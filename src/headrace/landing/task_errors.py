"""Translate failed Spark jobs and tasks into Headrace errors."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError

from headrace.errors import HeadraceError, LandingError, UnavailableError
from headrace.iceberg.catalog.outages import find_outage
from headrace.landing.batch import TaskFailure
from headrace.spark.session import explain_end

_REASON_CHARACTERS = 500
_CAUSE = re.compile(r"^(?:Caused by: )?(?!org\.apache\.spark\.SparkException: Job aborted)[\w.$]+(?:Error|Exception): ")
_ENDED = re.compile(r"SparkContext (?:was shut down|has been shut down)|stopped SparkContext", re.IGNORECASE)
_LAST_LINE = re.compile(r"^(?P<name>[\w.]+(?:Error|Exception)): (?P<says>.*)$", re.MULTILINE)


def explain_failure(error: Py4JError, *, logs: Path) -> HeadraceError:
    """Return the error of a failed job: an UnavailableError if an outage caused it, else a LandingError."""
    log = logs / "spark.log"
    if not isinstance(error, Py4JJavaError) or _ENDED.search(str(error.java_exception)):
        return explain_end(logs)
    name, says = _python_error(str(error.java_exception))
    if name.rpartition(".")[2] == UnavailableError.__name__:
        return UnavailableError(
            f"a landing task failed: {says}", where=str(log), next_step="Check the servers with: headrace status"
        )
    return LandingError(
        f"{name}: {says}" if name else _java_error(str(error.java_exception)),
        where=str(log),
        next_step="Nothing was committed. Read the traceback with: headrace logs spark",
    )


def describe_failure(error: BaseException | None, *, hide: Callable[[str], str]) -> TaskFailure:
    """Return the failure to send to the driver for an error of one stream; `hide` removes secrets from a text."""
    assert error is not None
    outage = find_outage(error)
    trace = hide("".join(traceback.format_exception(error)))
    if outage is not None:
        return TaskFailure(hide(f"{outage.where}: {outage.what}" if outage.where else outage.what), trace, unavailable=True)
    text = str(error).partition("\n")[0] if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return TaskFailure(hide(" ".join(text.split()))[:_REASON_CHARACTERS], trace)


def error_of(failure: TaskFailure, *, label: str) -> HeadraceError:
    """Return a stream's failure as an error: an UnavailableError if a server is unavailable, else a LandingError."""
    if failure.unavailable:
        return UnavailableError(
            f"a landing task failed: {failure.what}", where=label, next_step="Check the servers with: headrace status"
        )
    return LandingError(
        failure.what,
        where=label,
        next_step="The failed attempt committed nothing. Read the traceback with: headrace logs landing",
    )


def _python_error(text: str) -> tuple[str, str]:
    """Return the name and the message of the Python error that a Java stack trace carries."""
    _, _, trace = text.partition("Traceback (most recent call last)")
    matches = list(_LAST_LINE.finditer(trace))
    return (matches[-1]["name"], matches[-1]["says"]) if matches else ("", "")


def _java_error(text: str) -> str:
    """Return the reason of a job that failed without a Python error, such as a worker that died."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if _CAUSE.match(line)] or lines
    return reasons[0][:_REASON_CHARACTERS] if reasons else "a task failed, and Spark gave no reason"
