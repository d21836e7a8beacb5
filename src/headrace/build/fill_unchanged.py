"""Values that an event leaves unchanged and does not tell: those of the key's event before it. Pure: DataFrame in and out.

Every column of a key is decided by itself: the newest event that tells it counts, and a deletion tells that there is none. A
row keeps in `_carried` which event told each value that its own did not. So an older event that comes late finds its place,
whether it tells the value or says that it was gone in between.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from headrace.build.events import EPOCH, OMITTED
from headrace.build.removed import DELETED
from headrace.build.versions import ORDER, event_order
from headrace.spark.columns import named
from headrace.spec.model.layers import CARRIED, HISTORY_COLUMNS, LayerTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def own_events(table: LayerTable, rows: DataFrame) -> DataFrame:
    """Return a table's rows (with `_tombstone`) as the events that made them: without the values that these omitted."""
    omitted = rows.withColumn(OMITTED, F.transform(F.col(CARRIED), lambda each: each["column"]))
    return omitted.withColumns({name: F.when(_told(name), named(name)) for name in _data_columns(table, rows)}).drop(CARRIED)


def events_of_newest(table: LayerTable, rows: DataFrame) -> DataFrame:
    """Return the newest rows of keys (with `_tombstone`) as the events that made them.

    The values that older events told are events of their own.
    """
    carried, each, names = F.col(CARRIED), F.col("__each"), _data_columns(table, rows)
    older = rows.where(carried.isNotNull()).withColumn("__each", F.explode(carried))
    older = older.where(reduce(lambda a, b: a | b, (each[name].isNotNull() for name in table.sequence_by)))
    older = older.withColumns(
        {
            **{name: F.when(each["column"] == name, named(name)) for name in names},
            **{name: each[name] for name in table.sequence_by},
            OMITTED: F.filter(F.array(*map(F.lit, names)), lambda name: name != each["column"]),
            DELETED: ~each["is_known"],
        }
    )
    return own_events(table, rows).unionByName(older.drop(CARRIED, "__each"))


def carry_values(table: LayerTable, events: DataFrame) -> DataFrame:
    """Return the events, each with all its values and `_carried`, as far as events before it tell them; else null.

    `__order` says in which order they stood before values were filled in.
    """
    names = _data_columns(table, events)
    events = events.withColumn(ORDER, event_order(events, sequence_by=table.sequence_by))
    keys = [named(key) for key in table.keys]
    epoch = [F.col(EPOCH)["at"]] if EPOCH in events.columns else []
    window = Window.partitionBy(*keys, *epoch).orderBy(ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sequence = [named(name).alias(name) for name in table.sequence_by]
    states, carried = {}, []
    for index, name in enumerate(names):
        told = F.struct(F.when(~F.col(DELETED), named(name)).alias("value"), *sequence, (~F.col(DELETED)).alias("is_known"))
        states[f"__state_{index}"] = F.last(F.when(_told(name), told), ignorenulls=True).over(window)
        state = F.col(f"__state_{index}")
        source = F.struct(
            F.lit(name).alias("column"),
            *(state[each].alias(each) for each in table.sequence_by),
            F.coalesce(state["is_known"], F.lit(False)).alias("is_known"),
        )
        carried.append(F.when(~_told(name), source))
    found = F.array_compact(F.array(*carried))
    filled = {
        name: F.when(_told(name), named(name)).otherwise(F.col(f"__state_{index}")["value"]) for index, name in enumerate(names)
    }
    known = events.withColumns(states)
    return known.withColumns({**filled, CARRIED: F.when(F.size(found) > 0, found)}).drop(*states, OMITTED)


def without_carried(events: DataFrame, *, like: DataFrame) -> DataFrame:
    """Return events that tell all their values, with the `_carried` of such, in the type that the table has."""
    return events.withColumn(CARRIED, F.lit(None).cast(like.schema[CARRIED].dataType)).drop(OMITTED)


def has_unknown(carried: Column) -> Column:
    """Return whether a row has a value that no event told."""
    return F.coalesce(F.exists(carried, lambda each: ~each["is_known"]), F.lit(False))


def _told(name: str) -> Column:
    return ~F.coalesce(F.array_contains(F.col(OMITTED), name), F.lit(False))


def _data_columns(table: LayerTable, rows: DataFrame) -> list[str]:
    own = {*table.keys, *table.sequence_by, *HISTORY_COLUMNS, CARRIED, DELETED, OMITTED, EPOCH}
    return [name for name in rows.columns if name not in own]
