"""Refused rows that are collected in the pass that writes the good ones.

A Spark job has one output, so the refused rows of a large build were written by a second one, which ran the whole query again.
Few of them fit into the metrics that the first job observes anyway. What is collected is bounded in each task and in this
process: above the bounds the rows are written by a job of their own, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.internal import InternalFunction

from headrace.quality.expectations import Measured

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

MOST_ROWS = 5_000
_MOST_ROW_BYTES = 4_096
"""How many refused rows are collected, and how long one of them may be as JSON: at most 20 MB in a task."""

_NUMBER = "__number"
_COLLECTED, _COUNTED = "__collected", "__refused_rows"

_PLACES: dict[str, tuple[str, Callable[[Column], Column], pa.DataType]] = {
    "kafka_topic": ("string", lambda topic: topic, pa.string()),
    "kafka_partition": ("int", lambda partition: partition, pa.int32()),
    "kafka_offset": ("bigint", lambda offset: offset, pa.int64()),
    "kafka_timestamp": ("timestamp", F.unix_micros, pa.timestamp("us", "UTC")),
}
"""The types of places that are collected, how they are, and what they are in Arrow. PySpark would return a timestamp in the
zone of this machine, where two hours of a night in October have the same name."""


def number_rows(measured: Measured) -> Measured:
    """Return measured rows that have a number, by which a row is told from another one that is equal to it."""
    if not _can_collect(measured):
        return measured
    return replace(measured, rows=measured.rows.withColumn(_NUMBER, F.monotonically_increasing_id()))


def refused_metrics(measured: Measured) -> list[Column]:
    """Return aggregates over numbered rows that `read_refused` understands."""
    if not _can_collect(measured):
        return []
    row = F.encode(F.expr(measured.refused_json), "UTF-8").alias("row")
    places = [read(F.col(name)).alias(name) for name, (read, _) in _places_of(measured).items()]
    refused = F.struct(F.col(_NUMBER).alias("number"), row, measured.reasons.alias("reason"), *places)
    short = F.get(F.filter(F.array(refused), lambda refused: F.octet_length(refused["row"]) <= _MOST_ROW_BYTES), 0)
    collected = F.when(F.expr(measured.is_refused), short)
    # The lowest numbers stay: a task that has enough rows keeps none of those that follow.
    return [
        InternalFunction.collect_top_k(collected, MOST_ROWS, True).alias(_COLLECTED),
        F.expr(f"count_if({measured.is_refused})").alias(_COUNTED),
    ]


def read_refused(measured: Measured, values: Mapping[str, object]) -> pa.Table | None:
    """Return the refused rows, or None if not all of them were collected.

    Rows that a repeated stage computed twice are counted twice, but have the same number if their order is the same: then None
    is returned.
    """
    if not _can_collect(measured):
        return None
    collected = cast("list[Row]", values[_COLLECTED])
    rows = {row["number"]: row for row in collected}
    if len(rows) != int(str(values[_COUNTED])):
        return None
    ordered = [rows[number] for number in sorted(rows)]
    types = {"row": pa.binary(), "reason": pa.string(), **{name: kind for name, (_, kind) in _places_of(measured).items()}}
    return pa.table({name: pa.array([row[name] for row in ordered], kind) for name, kind in types.items()})


def _can_collect(measured: Measured) -> bool:
    """Return whether rows can be refused, and are of the types that are collected: a query may give the places other ones."""
    types = dict(measured.rows.dtypes)
    return measured.can_refuse and all(types.get(name, kind) == kind for name, (kind, _, _) in _PLACES.items())


def _places_of(measured: Measured) -> dict[str, tuple[Callable[[Column], Column], pa.DataType]]:
    return {name: (read, kind) for name, (_, read, kind) in _PLACES.items() if name in measured.columns}
