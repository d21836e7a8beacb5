"""Measure lateness: a table's watermark, and the rows that arrive behind it.

Late rows are not dropped. A build recomputes the rows that they touch, so a window is correct however late its last row
arrives; the watermark only measures how often that happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.planned_inputs import PlannedInputs
from headrace.build.rows import LocalRows, Rows
from headrace.spark.columns import named

_TIMES = (pa.timestamp("us"), pa.timestamp("us", "UTC"))


@dataclass(frozen=True)
class Lateness:
    """The highest event time in microseconds, and the number of late rows.

    The event time is None for a table without a watermark, or before its first event.
    """

    event_time_us: int | None
    rows: int


def measure_lateness(inputs: PlannedInputs) -> Lateness:
    """Return the lateness for the table's ledger entry after a build.

    A row is late if its time is before the highest time of earlier builds, minus the delay. A refresh keeps the count.
    """
    watermark, entry = inputs.table.watermark, inputs.plan.entry
    driver = inputs.table.drivers[0] if inputs.table.drivers else None
    if watermark is None or driver is None:
        return Lateness(None, 0)
    refresh = inputs.plan.action == "refresh"
    if not refresh and not inputs.moved(driver):
        return Lateness(entry.event_time_us, entry.rows_late)
    rows = inputs.whole(driver) if refresh else inputs.changes(driver).entered
    before = None if refresh else entry.event_time_us
    highest, late = _measure(rows, watermark.column, before=None if before is None else before - round(watermark.seconds * 1e6))
    times = [moment for moment in (before, highest) if moment is not None]
    return Lateness(max(times) if times else None, entry.rows_late + late)


def _measure(rows: Rows, column: str, *, before: int | None) -> tuple[int | None, int]:
    """Return the highest time in microseconds, and the number of rows with a time lower than `before`."""
    if isinstance(rows, LocalRows) and rows.arrow.schema.field(column).type in _TIMES:
        moments = rows.arrow[column].cast(pa.int64())
        late = 0 if before is None else pc.sum(pc.less(moments, before)).as_py() or 0
        return pc.max(moments).as_py(), late
    moment = F.unix_micros(named(column).cast("timestamp"))
    count = F.lit(0) if before is None else F.count_if(moment < before)
    row = rows.frame.agg(F.max(moment).alias("highest"), count.alias("late")).first()
    assert row is not None
    return row["highest"], int(row["late"])
