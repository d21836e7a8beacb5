"""Fill the values that an event omits because they did not change, from earlier events of its key. Pure: DataFrame in and out.

Every column of a key is filled separately from the newest event that contains it; a delete resets all columns. A row's
`_carried` records the source event of each filled value. So an older event that arrives late is ordered correctly, whether it
contains the value or deletes the key.
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
    """Return a table's rows (with `_tombstone`) as their original events, without the values that these omitted."""
    omitted = rows.withColumn(OMITTED, F.transform(F.col(CARRIED), lambda carried: carried["column"]))
    columns = {name: F.when(_is_given(name), named(name)) for name in _data_columns(table, rows)}
    return omitted.withColumns(columns).drop(CARRIED)


def events_of_newest(table: LayerTable, rows: DataFrame) -> DataFrame:
    """Return the newest rows of keys (with `_tombstone`) as their original events.

    Values that older events contained are returned as separate events.
    """
    carried, source, names = F.col(CARRIED), F.col("__source"), _data_columns(table, rows)
    older = rows.where(carried.isNotNull()).withColumn("__source", F.explode(carried))
    older = older.where(reduce(lambda a, b: a | b, (source[name].isNotNull() for name in table.sequence_by)))
    older = older.withColumns(
        {
            **{name: F.when(source["column"] == name, named(name)) for name in names},
            **{name: source[name] for name in table.sequence_by},
            OMITTED: F.filter(F.array(*map(F.lit, names)), lambda name: name != source["column"]),
            DELETED: ~source["is_known"],
        }
    )
    return own_events(table, rows).unionByName(older.drop(CARRIED, "__source"))


def carry_values(table: LayerTable, events: DataFrame) -> DataFrame:
    """Fill each event's omitted values from earlier events, or with null, and add `_carried`.

    `__order` is the order of the events before filling.
    """
    names = _data_columns(table, events)
    events = events.withColumn(ORDER, event_order(events, sequence_by=table.sequence_by))
    events = events.withColumn(OMITTED, F.when(~F.col(DELETED), F.col(OMITTED)))  # a delete resets even what it omits
    keys = [named(key) for key in table.keys]
    epoch = [F.col(EPOCH)["at"]] if EPOCH in events.columns else []
    window = Window.partitionBy(*keys, *epoch).orderBy(ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    sequence = [named(name).alias(name) for name in table.sequence_by]
    states, carried = {}, []
    for index, name in enumerate(names):
        given = F.struct(F.when(~F.col(DELETED), named(name)).alias("value"), *sequence, (~F.col(DELETED)).alias("is_known"))
        states[f"__state_{index}"] = F.last(F.when(_is_given(name), given), ignorenulls=True).over(window)
        state = F.col(f"__state_{index}")
        source = F.struct(
            F.lit(name).alias("column"),
            *(state[column].alias(column) for column in table.sequence_by),
            F.coalesce(state["is_known"], F.lit(False)).alias("is_known"),
        )
        carried.append(F.when(~_is_given(name), source))
    sources = F.array_compact(F.array(*carried))
    filled = {
        name: F.when(_is_given(name), named(name)).otherwise(F.col(f"__state_{index}")["value"])
        for index, name in enumerate(names)
    }
    known = events.withColumns(states)
    return known.withColumns({**filled, CARRIED: F.when(F.size(sources) > 0, sources)}).drop(*states, OMITTED)


def without_carried(events: DataFrame, *, like: DataFrame) -> DataFrame:
    """Return events without omitted values, with a null `_carried` of the table's type."""
    return events.withColumn(CARRIED, F.lit(None).cast(like.schema[CARRIED].dataType)).drop(OMITTED)


def has_unknown(carried: Column) -> Column:
    """Return whether a row has a value that no event contains."""
    return F.coalesce(F.exists(carried, lambda source: ~source["is_known"]), F.lit(False))


def _is_given(name: str) -> Column:
    return ~F.coalesce(F.array_contains(F.col(OMITTED), name), F.lit(False))


def _data_columns(table: LayerTable, rows: DataFrame) -> list[str]:
    own = {*table.keys, *table.sequence_by, *HISTORY_COLUMNS, CARRIED, DELETED, OMITTED, EPOCH}
    return [name for name in rows.columns if name not in own]
