"""Rows in a build: few rows as Arrow in this process, all rows as DataFrames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.build.arrow import to_spark
from headrace.spark.arrow import optional, to_arrow
from headrace.spark.columns import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Rows(ABC):
    """Rows of one schema."""

    @property
    @abstractmethod
    def frame(self) -> DataFrame:
        """The rows as a DataFrame."""

    @property
    @abstractmethod
    def columns(self) -> list[str]: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool: ...

    @abstractmethod
    def select(self, names: Mapping[str, str] | Sequence[str]) -> Rows:
        """Return some columns; a mapping has the source column of each new name."""

    @abstractmethod
    def distinct(self) -> Rows:
        """Return the distinct rows."""


@dataclass(frozen=True)
class SparkRows(Rows):
    """Rows that only Spark has."""

    spark_frame: DataFrame

    @property
    def frame(self) -> DataFrame:
        return self.spark_frame

    @property
    def columns(self) -> list[str]:
        return self.spark_frame.columns

    @property
    def is_empty(self) -> bool:
        return self.frame.isEmpty()

    def select(self, names: Mapping[str, str] | Sequence[str]) -> Rows:
        return SparkRows(self.frame.select(*(named(column).alias(name) for name, column in _renamed(names).items())))

    def distinct(self) -> Rows:
        return SparkRows(self.frame.distinct())


@dataclass(frozen=True)
class LocalRows(Rows):
    """Few rows in this process. They are passed to Spark on first use."""

    spark: SparkSession
    arrow: pa.Table
    schema: StructType

    @cached_property
    def relation(self) -> DataFrame:
        """The rows as a Spark relation."""
        return to_spark(self.spark, self.arrow, self.schema)

    @cached_property
    def frame(self) -> DataFrame:
        return self.relation.coalesce(1)  # one partition, so that Spark plans no exchange

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def is_empty(self) -> bool:
        return not self.arrow.num_rows

    def select(self, names: Mapping[str, str] | Sequence[str]) -> LocalRows:
        renamed = _renamed(names)
        schema = StructType([StructField(name, self.schema[column].dataType) for name, column in renamed.items()])
        return LocalRows(self.spark, self.arrow.select(list(renamed.values())).rename_columns(list(renamed)), schema)

    def distinct(self) -> LocalRows:
        if any(pa.types.is_nested(field.type) for field in self.arrow.schema):
            return collect(self.spark, self.frame.distinct())
        return replace(self, arrow=self.arrow.group_by(self.arrow.column_names, use_threads=False).aggregate([]))


@dataclass(frozen=True)
class ChangeSet:
    """The rows that entered an input between two states, and the rows that left it.

    `left` is None if no row can have left. It may contain rows that did not change.
    """

    entered: Rows
    left: Rows | None = None

    def both(self, names: Mapping[str, str] | Sequence[str]) -> Rows:
        """Return some columns of all rows that entered or left."""
        parts = [rows.select(names) for rows in (self.entered, self.left) if rows is not None]
        return union(parts, empty=parts[0])

    @property
    def nbytes(self) -> int:
        """The size of the rows in this process in bytes."""
        return sum(rows.arrow.nbytes for rows in (self.entered, self.left) if isinstance(rows, LocalRows))


def collect(spark: SparkSession, frame: DataFrame) -> LocalRows:
    """Compute rows now, and return them as local rows."""
    return LocalRows(spark, to_arrow(frame), optional(frame.schema))


def arrow_rows(rows: Rows) -> pa.Table:
    """Return rows as Arrow. Spark rows are computed now."""
    return rows.arrow if isinstance(rows, LocalRows) else to_arrow(rows.frame)


def union(parts: Sequence[Rows], *, empty: Rows) -> Rows:
    """Return the rows of all parts, which have the same columns, or `empty` without parts."""
    if len(parts) < 2:
        return parts[0] if parts else empty
    local = [part for part in parts if isinstance(part, LocalRows)]
    if len(local) < len(parts):
        return SparkRows(reduce(lambda a, b: a.unionByName(b), (part.frame for part in parts)))
    first = local[0]
    tables = [part.arrow.select(first.columns) for part in local]
    return LocalRows(first.spark, pa.concat_tables(tables, promote_options="permissive"), first.schema)


def _renamed(names: Mapping[str, str] | Sequence[str]) -> Mapping[str, str]:
    return names if isinstance(names, Mapping) else {name: name for name in names}
