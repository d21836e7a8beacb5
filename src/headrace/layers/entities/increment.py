"""What a change makes of a table of entities: the rows to write, and the old ones that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as F  # noqa: N812

from headrace.layers.arrow import to_spark
from headrace.layers.entities.index import read_index
from headrace.layers.entities.normalise import normalise
from headrace.layers.entities.refresh import rules_of
from headrace.layers.entities.touched import Resolved, resolve_change
from headrace.layers.joins import drop_matching, equal_columns, keep_matching
from headrace.layers.lake import PlannedInputs
from headrace.layers.removed import DELETED
from headrace.layers.types import spark_schema
from headrace.layers.versions import newest_of_keys
from headrace.spec.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED
from headrace.tables.spark_files import JavaObject, ScanFiles, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESOLVED = (ENTITY_ID, PREVIOUS, UNUSED)


@dataclass(frozen=True)
class EntityChange:
    """Rows with all columns, the keys that are touched, the files that hold their old rows, and how these become new ones."""

    rows: DataFrame
    touched: DataFrame
    holding: tuple[str, ...]
    changed: DataFrame
    keys: tuple[str, ...]

    def decide(self, rows: DataFrame, old: DataFrame) -> DataFrame:
        """Gives back the rows that the touched keys shall have: the new ones, and old ones whose entity has changed."""
        others = drop_matching(old, rows, self.keys)
        other = {name: f"__other_{index}" for index, name in enumerate(self.keys)}
        renamed = self.changed.withColumnsRenamed({**other, **{name: f"__new_{name}" for name in _RESOLVED}})
        kept = others.join(F.broadcast(renamed), equal_columns(other), "inner")
        kept = kept.withColumns({name: F.col(f"__new_{name}") for name in _RESOLVED})
        return rows.unionByName(kept.select(*(F.col(f"`{name}`") for name in rows.columns)))


def resolve_increment(
    inputs: PlannedInputs, java_table: JavaObject, rows: pl.DataFrame, touched: pl.DataFrame | None, files: ScanFiles
) -> EntityChange:
    """Gives back what the table becomes when these rows of its query come.

    They are all rows that the touched keys shall have; without touched keys they meet the rows that are there, and the newest
    of a key stays.
    """
    table, lake = inputs.table, inputs.lake
    rules = rules_of(table)
    keys = list(table.keys)
    paths = list(files.tasks)
    found = lake.catalog.load_table(str(table.table))
    index = read_index(found, rules, sequence_by=table.sequence_by or "", paths=paths)
    new = normalise(rows, table.matches).drop(*table.except_columns)
    meets = rows.select(keys).unique() if touched is None else touched
    known = index.join(meets, on=keys, how="semi", nulls_equal=True) if touched is None else index.clear()
    if known.height or new.select(keys).is_duplicated().any():
        holding = [paths[number] for number in known["__file"].unique()]
        new = _newest(inputs, java_table, new, files.among(holding))
    change = resolve_change(index, new, meets, rules)
    return _to_spark(inputs, new, meets, change, paths)


def _newest(inputs: PlannedInputs, java_table: JavaObject, new: pl.DataFrame, files: ScanFiles) -> pl.DataFrame:
    """Gives back the newest record of each key, of those that came and those that are there: decided as a refresh does."""
    lake, table = inputs.lake, inputs.table
    kinds = {column.name: column for column in lake.columns[table.table]}
    came = to_spark(lake.spark, new, spark_schema([kinds[name] for name in new.columns]))
    with read_files(lake.spark, java_table, files) as old:
        there = keep_matching(old, came, table.keys).select(*came.columns)
        marked = came.unionByName(there).withColumn(DELETED, F.lit(False))
        newest = newest_of_keys(marked, keys=table.keys, sequence_by=table.sequence_by or "")
        return pl.DataFrame(newest.select(*came.columns).toArrow())


def _to_spark(
    inputs: PlannedInputs, new: pl.DataFrame, touched: pl.DataFrame, change: Resolved, paths: Sequence[str]
) -> EntityChange:
    spark, table = inputs.lake.spark, inputs.table
    keys = list(table.keys)
    columns = inputs.lake.columns[table.table]
    complete = new.join(change.new, on=keys, how="left", nulls_equal=True)
    complete = complete.with_columns(pl.lit("100.00").cast(pl.Decimal(5, 2)).alias(CONFIDENCE))
    every = pl.concat([touched.select(keys), change.changed.select(keys)]).unique()
    kinds = {column.name: column for column in columns}
    return EntityChange(
        to_spark(spark, complete, spark_schema(columns)).withColumn(DELETED, F.lit(False)),
        to_spark(spark, every, spark_schema([kinds[name] for name in keys])),
        tuple(paths[number] for number in change.files),
        to_spark(spark, change.changed, spark_schema([kinds[name] for name in (*keys, *_RESOLVED)])),
        table.keys,
    )
