"""Records as rows of Spark: normalised, the newest of each key, numbered in the order of their keys.

Values are normalised and ids are made by the functions that the driver uses, on batches of Arrow: both forms give the same.
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

_MADE, _ROW, _ORDER, _KNOWN, _KEY = "__made", "__row", "__order", "__known", "__key_{}"
_NESTED = (StructType, ArrayType)
_KNOWN_IDS = StructType([StructField(ENTITY_ID, StringType()), StructField(PREVIOUS, ArrayType(StringType()))])


def number_records(rows: DataFrame, known: DataFrame | None, table: TableSettings) -> DataFrame:
    """Return the newest record of each key with NODE, OWN_ID, and the `entity_id` and `previous_entity_ids` that it had.

    A NODE is greater where the key is greater, nulls last. It is another one each time that the frame is computed.
    `known` has the keys and ids of the table's rows, or is None where there are none.
    """
    normalised = _normalised(rows, table)
    kept = [name for name in normalised.columns if name not in (*table.except_columns, _MADE)]
    nested, first = _nested(rows, table), list(table.sequence_by)
    order = [
        named(_MADE)[_text(nested.index(name))] if name in nested else named(name)
        for name in (*first, *(name for name in kept if name not in first))
    ]
    keys = [named(key).alias(_KEY.format(place)) for place, key in enumerate(table.keys)]
    own = named(_MADE)[OWN_ID].alias(OWN_ID)
    candidates = normalised.select(
        *keys,
        F.struct(*map(named, kept), own).alias(_ROW),
        F.struct(*(each.alias(f"_{place}") for place, each in enumerate(order))).alias(_ORDER),
        F.lit(None).cast(_KNOWN_IDS).alias(_KNOWN),
    )
    if known is not None:
        candidates = candidates.unionByName(_as_candidates(known, table.keys), allowMissingColumns=True)
    newest = candidates.groupBy(*(_KEY.format(place) for place in range(len(keys)))).agg(
        F.max_by(_ROW, _ORDER).alias(_ROW), F.first(_KNOWN, ignorenulls=True).alias(_KNOWN)
    )
    # A key that only the table has is a record that is gone.
    records = newest.where(F.col(_ROW).isNotNull()).select(f"{_ROW}.*", f"{_KNOWN}.*")
    ordered = records.orderBy(*(named(key).asc_nulls_last() for key in table.keys))
    return ordered.select("*", F.monotonically_increasing_id().alias(NODE))


def _as_candidates(known: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return known ids in the columns of candidates: without a row, so that they only add ids to the rows of their keys."""
    named_keys = (named(key).alias(_KEY.format(place)) for place, key in enumerate(keys))
    return known.select(*named_keys, F.struct(named(ENTITY_ID), named(PREVIOUS)).cast(_KNOWN_IDS).alias(_KNOWN))


def _normalised(rows: DataFrame, table: TableSettings) -> DataFrame:
    """Return rows with their match columns, and `_MADE`: their own ids, and the text by which nested values are ordered."""
    matches, keys, columns = table.matches, table.keys, [each.column for each in table.matches]
    texts = {name: _text(place) for place, name in enumerate(_nested(rows, table))}

    def make(batch: pl.DataFrame) -> pl.DataFrame:
        made = normalise(batch, matches).select(columns)
        ids = pl.Series(OWN_ID, [own_id(key) for key in batch.select(keys).iter_rows()], dtype=pl.String)
        return made.with_columns(ids, *(sortable(batch[name]).alias(text) for name, text in texts.items()))

    reads = dict.fromkeys((*(name for match in matches for name in match.reads), *keys, *texts))
    kind = StructType([StructField(name, StringType()) for name in (*columns, OWN_ID, *texts.values())])
    made = rows.withColumn(_MADE, on_batches(make, kind)(F.struct(*map(named, reads))))
    return made.withColumns({name: named(_MADE)[name] for name in columns})


def _nested(rows: DataFrame, table: TableSettings) -> list[str]:
    """Return the columns of records that can't be put in order as they are."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return [name for name, kind in kinds.items() if name not in table.except_columns and isinstance(kind, _NESTED)]


def _text(place: int) -> str:
    return f"__text_{place}"
