"""Prepare records on Spark: normalise them, choose the newest of each key, and number them in key order.

Values and ids are computed by the same functions as in one process, on Arrow batches, so both ways give the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from headrace.build.entities.distributed.batches import on_batches
from headrace.build.entities.ids import own_id
from headrace.build.entities.names import NODE, OWN_ID
from headrace.build.entities.normalise import normalise
from headrace.build.entities.records import sortable
from headrace.spark.columns import named
from headrace.spec.model.layers import TableSettings
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_VALUES, _ROW, _ORDER, _KNOWN, _KEY = "__values", "__row", "__order", "__known", "__key_{}"
_NESTED = (StructType, ArrayType)
_KNOWN_IDS = StructType([StructField(ENTITY_ID, StringType()), StructField(PREVIOUS, ArrayType(StringType()))])


def number_records(rows: DataFrame, known: DataFrame | None, table: TableSettings) -> DataFrame:
    """Return the newest record of each key with NODE, OWN_ID, and its current `entity_id` and `previous_entity_ids`.

    NODE ascends with the key, nulls last. Its values differ each time that the frame is computed. `known` has the keys and ids
    of the table's rows, or is None for an empty table.
    """
    normalised = _normalised(rows, table)
    columns = [name for name in normalised.columns if name not in (*table.except_columns, _VALUES)]
    nested, first = _nested(rows, table), list(table.sequence_by)
    order = [
        named(_VALUES)[_text(nested.index(name))] if name in nested else named(name)
        for name in (*first, *(name for name in columns if name not in first))
    ]
    keys = [named(key).alias(_KEY.format(place)) for place, key in enumerate(table.keys)]
    own = named(_VALUES)[OWN_ID].alias(OWN_ID)
    candidates = normalised.select(
        *keys,
        F.struct(*map(named, columns), own).alias(_ROW),
        F.struct(*(column.alias(f"_{place}") for place, column in enumerate(order))).alias(_ORDER),
        F.lit(None).cast(_KNOWN_IDS).alias(_KNOWN),
    )
    if known is not None:
        candidates = candidates.unionByName(_as_candidates(known, table.keys), allowMissingColumns=True)
    newest = candidates.groupBy(*(_KEY.format(place) for place in range(len(keys)))).agg(
        F.max_by(_ROW, _ORDER).alias(_ROW), F.first(_KNOWN, ignorenulls=True).alias(_KNOWN)
    )
    # A key that only the table has belongs to a removed record.
    records = newest.where(F.col(_ROW).isNotNull()).select(f"{_ROW}.*", f"{_KNOWN}.*")
    ordered = records.orderBy(*(named(key).asc_nulls_last() for key in table.keys))
    return ordered.select("*", F.monotonically_increasing_id().alias(NODE))


def _as_candidates(known: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return known ids with the columns of candidates. They have no row, so they only add ids to the rows of their keys."""
    named_keys = (named(key).alias(_KEY.format(place)) for place, key in enumerate(keys))
    return known.select(*named_keys, F.struct(named(ENTITY_ID), named(PREVIOUS)).cast(_KNOWN_IDS).alias(_KNOWN))


def _normalised(rows: DataFrame, table: TableSettings) -> DataFrame:
    """Return rows with their match columns and `_VALUES`: the rows' own ids, and sortable text of nested values."""
    matches, keys, columns = table.matches, table.keys, [match.column for match in table.matches]
    texts = {name: _text(place) for place, name in enumerate(_nested(rows, table))}

    def make(batch: pl.DataFrame) -> pl.DataFrame:
        values = normalise(batch, matches).select(columns)
        ids = pl.Series(OWN_ID, [own_id(key) for key in batch.select(keys).iter_rows()], dtype=pl.String)
        return values.with_columns(ids, *(sortable(batch[name]).alias(text) for name, text in texts.items()))

    reads = dict.fromkeys((*(name for match in matches for name in match.reads), *keys, *texts))
    kind = StructType([StructField(name, StringType()) for name in (*columns, OWN_ID, *texts.values())])
    computed = rows.withColumn(_VALUES, on_batches(make, kind)(F.struct(*map(named, reads))))
    return computed.withColumns({name: named(_VALUES)[name] for name in columns})


def _nested(rows: DataFrame, table: TableSettings) -> list[str]:
    """Return the nested columns of records, which Spark can't sort."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return [name for name, kind in kinds.items() if name not in table.except_columns and isinstance(kind, _NESTED)]


def _text(place: int) -> str:
    return f"__text_{place}"
