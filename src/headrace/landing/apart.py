"""Run the streams of a batch so that one failing stream never fails another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.errors import HeadraceError, LandingError, UnavailableError
from headrace.landing.batch import Range, StreamResult
from headrace.landing.landed import LandingStream
from headrace.landing.task_errors import error_of

Run = Callable[[Sequence[LandingStream], Sequence[Range]], Mapping[str, Sequence[StreamResult]]]
"""Run streams in one job and return the results of each stream by its label."""


class Outcome(NamedTuple):
    """The results of the streams that can be committed, and the error and traceback of every other stream, by label."""

    results: dict[str, Sequence[StreamResult]]
    errors: dict[str, tuple[HeadraceError, str]]


def run_apart(active: Sequence[LandingStream], ranges: Sequence[Range], run: Run) -> Outcome:
    """Run the healthy streams in one job, then each stream that failed before in a job of its own.

    If the shared job fails, each of its streams runs again alone.

    Raise an UnavailableError if a server is unavailable to every stream, and at least one of them did not fail before.
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
