"""What changed in an input since it was last read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyspark.sql import functions as F  # noqa: N812

from headrace.layers.inputs import is_raw, position_column, read_input
from headrace.layers.removed import read_removed
from headrace.spec.pipeline import Pipeline, TableName
from headrace.spec.types import Column
from headrace.tables.build_ledger import InputState
from headrace.tables.spark_columns import named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Changes:
    """Rows that came or changed, as they are now, and rows as they were before they changed or went.

    `before` is None where nothing can have gone: most inputs only grow. It may name rows that did not change after all.
    """

    rows: DataFrame
    before: DataFrame | None = None


def read_changes(
    spark: SparkSession,
    catalog: Catalog,
    pipeline: Pipeline,
    name: TableName,
    *,
    since: InputState,
    until: InputState,
    columns: tuple[Column, ...],
) -> Changes:
    """Gives back what happened to an input between two points of its life.

    Rows tell themselves when they came, so neither compaction nor an expired snapshot changes what is read, and the files that
    hold none of them are not opened.
    """
    position = position_column(name, pipeline)
    rows = read_input(spark, name, until, columns=columns, with_position=position)
    rows = rows.where((F.col(position) > since.position) & (F.col(position) <= until.position))
    rows = rows.select(*(named(column.name) for column in columns))
    if is_raw(name, pipeline):
        return Changes(rows)
    return Changes(rows, read_removed(spark, catalog, name, since=since, until=until, columns=columns))
