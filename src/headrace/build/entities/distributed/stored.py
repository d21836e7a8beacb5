"""The stored records of a table that is too large for one process: Spark looks up the records that a change affects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.build.arrow import to_spark
from headrace.build.entities.alike import block_columns, comparable
from headrace.build.entities.distributed.pairs import with_comparable
from headrace.build.entities.index import FILE_NUMBER, PLACE, ROW_NUMBER, Lookup, Stored, index_columns
from headrace.build.entities.resolve import Rules
from headrace.build.joins import keep_matching
from headrace.iceberg.files.spark_files import FILE, POSITION
from headrace.spark.arrow import to_arrow
from headrace.spark.columns import named
from headrace.spec.model.fuzzy import Fuzzy
from headrace.spec.model.matching import ENTITY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBER = "__number"


@dataclass(frozen=True)
class StoredOnSpark(Stored):
    """A table's snapshot, read by Spark: `rows` are all its rows, with `_file` and `_pos`.

    Only affected rows are collected by this process. Each lookup scans the columns that it needs.
    """

    session: SparkSession
    rows: DataFrame

    def index(self, rules: Rules) -> Lookup:
        return _Lookup(self, tuple(index_columns(rules)))

    def complete(self, rows: pl.DataFrame) -> pl.DataFrame:
        paths = pl.Series(FILE, [file.path for file in self.files], dtype=pl.String)
        places = pl.DataFrame({FILE: paths.gather(rows[FILE_NUMBER]), POSITION: rows[ROW_NUMBER]})
        schema = StructType([StructField(FILE, StringType()), StructField(POSITION, LongType())])
        matching = keep_matching(self.rows, to_spark(self.session, places, schema), (FILE, POSITION))
        return self.fetch(matching, self.columns).sort(PLACE)

    def fetch(self, rows: DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """Collect these columns of Spark rows, each with its place."""
        collected = pl.DataFrame(to_arrow(rows.select(*map(named, (*columns, FILE, POSITION)))))
        numbers = {file.path: number for number, file in enumerate(self.files)}
        return collected.select(
            *(pl.col(name).cast(kind) for name, kind in self.empty(columns).schema.items()),
            pl.col(FILE).replace_strict(numbers, return_dtype=pl.UInt32).alias(FILE_NUMBER),
            pl.col(POSITION).cast(pl.Int64).alias(ROW_NUMBER),
        )


@dataclass(frozen=True)
class _Lookup:
    stored: StoredOnSpark
    columns: tuple[str, ...]

    def having(self, name: str, values: pl.Series, *, most: int | None = None) -> pl.DataFrame:
        matching = self._matching(pl.DataFrame({name: values.unique()}))
        if most is not None:
            numbered = Window.partitionBy(named(name)).orderBy(F.lit(0))
            matching = matching.withColumn(_NUMBER, F.row_number().over(numbered)).where(F.col(_NUMBER) <= most)
        return self.stored.fetch(matching, self.columns)

    def with_keys(self, keys: pl.DataFrame) -> pl.DataFrame:
        return self.stored.fetch(self._matching(keys), self.columns)

    def sharing_blocks(self, new: pl.DataFrame, fuzzy: Fuzzy) -> pl.DataFrame:
        new_values, rows = comparable(new, fuzzy), with_comparable(self.stored.rows, fuzzy)
        schema = StructType([StructField(name, StringType()) for name in new_values.columns])
        shared = []
        for place, block in enumerate(fuzzy.block_on):
            names = block_columns(block, fuzzy)
            values = to_spark(self.stored.session, new_values.select(names).drop_nulls().unique(), schema_of(schema, names))
            flag = f"__shared_{place}"
            rows = rows.join(values.withColumn(flag, F.lit(True)), names, "left")
            shared.append(F.coalesce(F.col(flag), F.lit(False)))
        return self.stored.fetch(rows.where(reduce(lambda a, b: a | b, shared)), self.columns)

    def largest_entity(self, touched: pl.Series) -> int:
        others = self.stored.rows.select(ENTITY_ID)
        ids = to_spark(
            self.stored.session,
            pl.DataFrame({ENTITY_ID: touched.cast(pl.String)}),
            StructType([StructField(ENTITY_ID, StringType())]),
        )
        others = others.join(ids, ENTITY_ID, "left_anti")
        largest = others.groupBy(ENTITY_ID).count().agg(F.max("count")).first()
        return int(largest[0] or 0) if largest else 0

    def _matching(self, values: pl.DataFrame) -> DataFrame:
        schema = schema_of(self.stored.rows.schema, values.columns)
        given = values.cast(self.stored.empty(values.columns).schema)
        return keep_matching(self.stored.rows, to_spark(self.stored.session, given, schema), values.columns)


def schema_of(schema: StructType, names: Sequence[str]) -> StructType:
    """Return the named fields as nullable fields."""
    return StructType([StructField(name, schema[name].dataType) for name in names])
