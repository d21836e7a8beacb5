"""Collect refused rows in the Spark job that writes the good ones.

A Spark job has one output, so writing the refused rows of a large build takes a second job, which runs the whole query again.
A few refused rows fit into the metrics that the first job observes anyway. The collected rows are bounded in each task and in
this process. Above the bounds, a second job writes the rows.
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
"""The maximum number of collected rows and their maximum size as JSON: at most 20 MB in a task."""

_NUMBER = "__number"
_COLLECTED, _COUNTED = "__collected", "__refused_rows"

_PLACES: dict[str, tuple[str, Callable[[Column], Column], pa.DataType]] = {
    "kafka_topic": ("string", lambda topic: topic, pa.string()),
    "kafka_partition": ("int", lambda partition: partition, pa.int32()),
    "kafka_offset": ("bigint", lambda offset: offset, pa.int64()),
    "kafka_timestamp": ("timestamp", F.unix_micros, pa.timestamp("us", "UTC")),
}
"""The Kafka coordinates to collect: their Spark type, the expression that collects them, and their Arrow type. PySpark returns
a timestamp in this machine's time zone, where the hour of a daylight-saving change is ambiguous."""


def number_rows(measured: Measured) -> Measured:
    """Return measured rows with a number that distinguishes equal rows."""
    if not _can_collect(measured):
        return measured
    return replace(measured, rows=measured.rows.withColumn(_NUMBER, F.monotonically_increasing_id()))


def refused_metrics(measured: Measured) -> list[Column]:
    """Return aggregates over numbered rows, which `read_refused` reads."""
    if not _can_collect(measured):
        return []
    row = F.encode(F.expr(measured.refused_json), "UTF-8").alias("row")
    places = [read(F.col(name)).alias(name) for name, (read, _) in _places_of(measured).items()]
    refused = F.struct(F.col(_NUMBER).alias("number"), row, measured.reasons.alias("reason"), *places)
    short = F.get(F.filter(F.array(refused), lambda refused: F.octet_length(refused["row"]) <= _MOST_ROW_BYTES), 0)
    collected = F.when(F.expr(measured.is_refused), short)
    # Keep the lowest numbers: a task with enough rows ignores all further ones.
    return [
        InternalFunction.collect_top_k(collected, MOST_ROWS, True).alias(_COLLECTED),
        F.expr(f"count_if({measured.is_refused})").alias(_COUNTED),
    ]


def read_refused(measured: Measured, values: Mapping[str, object]) -> pa.Table | None:
    """Return the refused rows, or None if some were not collected.

    A retried stage counts its rows twice, but they have the same numbers if their order is the same. The result is None then.
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
    """Return whether rows can be refused and their Kafka coordinates have the expected types, which a query may change."""
    types = dict(measured.rows.dtypes)
    return measured.can_refuse and all(types.get(name, kind) == kind for name, (kind, _, _) in _PLACES.items())


def _places_of(measured: Measured) -> dict[str, tuple[Callable[[Column], Column], pa.DataType]]:
    return {name: (read, kind) for name, (_, read, kind) in _PLACES.items() if name in measured.columns}
