"""What Spark's errors mean for a table."""

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
    """Return the error for a query that gives several rows of one key, which is written as JSON."""
    return table.error(f"several rows have the key {key}", at="keys", fix="Group by the keys, or name more of them")


def explain_spark_error(table: LayerTable, error: PySparkException, states: Algebra | Recomputed) -> Exception:
    """Return the error of a build that says which data or query is wrong, on which line, and what to do next."""
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
    """Return the line of the expression that failed, if Spark names one that the table's file has once."""
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
    return [argument for found in _STATE_FIELD.finditer(fragment) for argument in calls[int(found["call"])].arguments]
