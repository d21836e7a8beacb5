"""All records of a table resolved anew; entities that are there keep their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from headrace.layers.arrow import Batches, map_batches, to_arrow
from headrace.layers.entities.normalise import normalise
from headrace.layers.entities.resolve import Rules, resolve, shared_too_widely
from headrace.layers.joins import equal_columns
from headrace.layers.removed import DELETED
from headrace.layers.versions import newest_of_keys
from headrace.spec.layers import LayerTable
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COPIES = "__copies"
_IS_OLD = "__is_old"


def rules_of(table: LayerTable) -> Rules:
    return Rules(table.keys, table.oldest_by or table.sequence_by or "", table.matches)


@contextmanager
def resolving(table: LayerTable, records: DataFrame, known: DataFrame | None) -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Gives how records, the same in any pass over them, become rows of the table, while the block runs.

    Most inputs have a key once, which the first pass tells. Only where one has several are all of them put in order.
    """
    resolved = resolve_all(table, normalised(table, records, only_values=True), known).persist()
    try:
        most = resolved.agg(F.max(COPIES)).first()
        if most is None or (most[0] or 0) <= 1:
            yield lambda rows: with_entities(table, rows, resolved)
            return
    finally:
        resolved.unpersist()
    again = resolve_all(table, newest_records(table, records), known).persist()
    try:
        yield lambda rows: with_entities(table, newest_records(table, rows), again)
    finally:
        again.unpersist()


def resolve_all(table: LayerTable, records: DataFrame, known: DataFrame | None) -> DataFrame:
    """Gives back a row for each normalised record: its keys, values, entity and `__copies`, how many records have its key.

    `known` has the ids that are there. Reading and normalising is spread; the keys and values of all records then meet in one
    task, which takes about 300 bytes for each.
    """
    rules = rules_of(table)
    kept = dict.fromkeys((*table.keys, rules.oldest_by))
    values = [StructField(each.column, StringType()) for each in table.matches]
    ids = [StructField(ENTITY_ID, StringType()), StructField(PREVIOUS, ArrayType(StringType()))]
    met = records.select(*(F.col(f"`{name}`") for name in (*kept, *(each.column for each in table.matches))))
    met = met.select("*", *(F.lit(None).cast(each.dataType).alias(each.name) for each in ids), F.lit(False).alias(_IS_OLD))
    if known is not None:
        old = known.select(*(F.col(f"`{name}`") for name in (*table.keys, ENTITY_ID, PREVIOUS)), F.lit(True).alias(_IS_OLD))
        met = met.unionByName(old, allowMissingColumns=True)
    added = [*ids, StructField(UNUSED, ArrayType(StringType())), StructField(COPIES, IntegerType())]
    resolved = StructType([*(met.schema[name] for name in table.keys), *values, *added])

    def resolve_batches(batches: Batches) -> Batches:
        found = list(batches)
        if found:
            rows = resolve_records(pl.DataFrame(pa.Table.from_batches(found)), rules)
            yield from to_arrow(rows, resolved).to_batches()

    return map_batches(met.repartition(1), resolve_batches, resolved)


def resolve_records(met: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Gives back all records, resolved. Those that stand twice are counted: only one of them may stay."""
    keys = list(rules.keys)
    records, old = met.filter(~pl.col(_IS_OLD)).drop(_IS_OLD), met.filter(_IS_OLD).select(*keys, ENTITY_ID, PREVIOUS)
    if old.height:
        records = records.drop(ENTITY_ID, PREVIOUS).join(old, on=keys, how="left", nulls_equal=True)
    unused = {each.column: shared_too_widely(records, each) for each in rules.matches}
    resolved = resolve(records, rules, unused=unused)
    return resolved.with_columns(pl.len().over(keys).cast(pl.Int32).alias(COPIES))


def normalised(table: LayerTable, records: DataFrame, *, only_values: bool) -> DataFrame:
    """Gives back the records with their normalised values, without the columns that the table leaves out.

    `only_values` leaves out all that is not needed to resolve them.
    """
    needed = dict.fromkeys((*table.keys, rules_of(table).oldest_by))
    read = dict.fromkeys((*needed, *(name for each in table.matches for name in each.reads)))
    chosen = records.select(*(F.col(f"`{name}`") for name in read)) if only_values else records
    stays = needed if only_values else [name for name in records.columns if name not in table.except_columns]
    values = [StructField(each.column, StringType()) for each in table.matches]
    schema = StructType([*(chosen.schema[name] for name in stays), *values])
    matches = table.matches

    def normalise_batches(batches: Batches) -> Batches:
        for batch in batches:
            rows = normalise(pl.DataFrame(pa.Table.from_batches([batch])), matches)
            yield from to_arrow(rows, schema).to_batches()

    return map_batches(chosen, normalise_batches, schema)


def newest_records(table: LayerTable, records: DataFrame) -> DataFrame:
    """Gives back the newest record of each key, normalised: where two are of one sequence, their values decide as well."""
    marked = normalised(table, records, only_values=False).withColumn(DELETED, F.lit(False))
    return newest_of_keys(marked, keys=table.keys, sequence_by=table.sequence_by or "").drop(DELETED)


def with_entities(table: LayerTable, records: DataFrame, resolved: DataFrame) -> DataFrame:
    """Gives back the records with what was resolved of their keys."""
    other = {name: f"__other_{index}" for index, name in enumerate(table.keys)}
    renamed = resolved.drop(COPIES).withColumnsRenamed(other)
    bare = records.drop(*table.except_columns, *(each.column for each in table.matches))
    both = bare.join(renamed.hint("shuffle_hash"), equal_columns(other), "inner").drop(*other.values())
    return both.withColumn(CONFIDENCE, F.lit("100.00").cast("decimal(5,2)"))
