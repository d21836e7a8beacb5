"""Translate Spark's errors in a build into errors that name the table's file and line."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from headrace.build.aggregates.algebra import PREFIX, Algebra
from headrace.build.versions import NOT_UNIQUE
from headrace.errors import BuildError, SpecError
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.sql.aggregates import Recomputed

_STATE_FIELD = re.compile(rf"\b{PREFIX}[a-z](?P<call>\d+)\b")


def not_unique(table: LayerTable, key: str) -> SpecError:
    """Return the error for a query that returns several rows for one key, given as JSON."""
    return table.error(f"several rows have the key {key}", at="keys", fix="Group by the keys, or add columns to the keys")


def explain_spark_error(table: LayerTable, error: PySparkException, states: Algebra | Recomputed) -> Exception:
    """Return the error of a failed build, with the data or query that is wrong, its line, and the next step."""
    text = str(error)
    if NOT_UNIQUE in text:
        key = text.split(NOT_UNIQUE, 1)[1].splitlines()[0].split(" SQLSTATE")[0].strip()
        return not_unique(table, key)
    line = _find_line(table, error, states)
    return BuildError(
        f"Spark could not compute the table: {text.splitlines()[0]}",
        where=table.place.label if line is None else f"{table.place.label}:{line}",
        next_step="Nothing was published. Read the whole error with: headrace logs build",
    )


def _find_line(table: LayerTable, error: PySparkException, states: Algebra | Recomputed) -> int | None:
    """Return the line of the failed expression, if Spark names it and the table's file contains it exactly once."""
    if not isinstance(table.source, Query):
        return None
    for context in error.getQueryContext() or ():
        fragment = context.fragment()
        for expression in (fragment, *_merged_arguments(fragment, states)):
            start = table.source.text.find(expression)
            if start >= 0 and expression and table.source.text.find(expression, start + 1) < 0:
                return table.source.locate(start).line
    return None


def _merged_arguments(fragment: str, states: Algebra | Recomputed) -> list[str]:
    """Return the arguments of the aggregates whose stored states an expression merges."""
    if isinstance(states, Recomputed):
        return []
    calls = states.decomposition.calls
    return [argument for match in _STATE_FIELD.finditer(fragment) for argument in calls[int(match["call"])].arguments]
