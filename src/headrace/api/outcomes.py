"""Describe the outcomes of a build as results of the API."""

from __future__ import annotations

from headrace.api.results import TableBuild
from headrace.sessions.building import Outcome


def describe_build(outcome: Outcome) -> TableBuild:
    """Return what a build did with a table."""
    name, built = str(outcome.table.table), outcome.built
    if built:
        return TableBuild(name, "built", built.rows, built.entry.build_id, built.seconds)
    if outcome.error:
        return TableBuild(name, "failed", error=outcome.error)
    return TableBuild(name, "skipped" if outcome.because_of else "unchanged")
