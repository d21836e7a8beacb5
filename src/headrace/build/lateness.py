"""How late rows come: a table's watermark, and the rows that came behind it.

Late rows are not dropped. A build computes what they touch again, from the lake, so a window is right however late its last row
comes; the watermark says how often that happens.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.planned_inputs import PlannedInputs
from headrace.tables.spark_columns import named


@dataclass(frozen=True)
class Lateness:
    """The highest time of something that happened, in microseconds, and how many rows came when it was too far ahead of theirs.

    None stands for a table without a watermark, or one that has seen no time yet.
    """

    event_time_us: int | None
    rows: int


def measure_lateness(inputs: PlannedInputs) -> Lateness:
    """Gives back what the table's entry shall say of its watermark after a build.

    A row is late if it lies behind what earlier builds had seen, less the delay; a table that is written anew keeps its count.
    """
    watermark, entry = inputs.table.watermark, inputs.plan.entry
    driver = inputs.table.drivers[0] if inputs.table.drivers else None
    if watermark is None or driver is None:
        return Lateness(None, 0)
    refresh = inputs.plan.action == "refresh"
    if not refresh and not inputs.moved(driver):
        return Lateness(entry.event_time_us, entry.rows_late)
    rows = inputs.whole(driver).frame if refresh else inputs.changes(driver).entered.frame
    moment = F.unix_micros(named(watermark.column).cast("timestamp"))
    before = None if refresh else entry.event_time_us
    late = F.lit(0) if before is None else F.count_if(moment < before - int(watermark.seconds * 1_000_000))
    found = rows.agg(F.max(moment).alias("highest"), late.alias("late")).first()
    assert found is not None
    seen = [each for each in (before, found["highest"]) if each is not None]
    return Lateness(max(seen) if seen else None, entry.rows_late + int(found["late"]))
