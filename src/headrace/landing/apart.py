"""Runs the streams of a batch so that one which fails never takes another with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.errors import HeadraceError, LandingError, UnavailableError
from headrace.landing.batch import Range, StreamResult
from headrace.landing.landed import LandingStream
from headrace.landing.task_errors import error_of

Run = Callable[[Sequence[LandingStream], Sequence[Range]], Mapping[str, Sequence[StreamResult]]]
"""Runs streams together and returns the results of each by its label."""


class Outcome(NamedTuple):
    """The results of streams that can be committed, and the error and traceback of each other one, by label."""

    results: dict[str, Sequence[StreamResult]]
    errors: dict[str, tuple[HeadraceError, str]]


def run_apart(active: Sequence[LandingStream], ranges: Sequence[Range], run: Run) -> Outcome:
    """Run streams together; those that failed before run after them, each alone, and so does each of a job that failed.

    Raise an UnavailableError where a server is away for all streams, some of which did not fail before.
    """
    outcome = Outcome({}, {})
    groups = [[stream for stream in active if not stream.failure], *([stream] for stream in active if stream.failure)]
    while groups:
        group = groups.pop(0)
        if not group:
            continue
        topics = {stream.stream.topic for stream in group}
        try:
            parts = run(group, [part for part in ranges if part.topic in topics])
        except (LandingError, UnavailableError) as error:
            if len(group) > 1 and not isinstance(error, UnavailableError):
                groups += [[stream] for stream in group]
            else:
                outcome.errors.update(dict.fromkeys((stream.label for stream in group), (error, "")))
            continue
        for label, results in parts.items():
            failure = next((result.failure for result in results if result.failure), None)
            if failure:
                outcome.errors[label] = error_of(failure, label=label), failure.trace
            else:
                outcome.results[label] = results
    unavailable = [error for error, _ in outcome.errors.values() if isinstance(error, UnavailableError)]
    if not outcome.results and len(unavailable) == len(outcome.errors) and not all(stream.failure for stream in active):
        raise unavailable[0]
    return outcome
