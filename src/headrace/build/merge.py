"""Puts the rows of touched keys into a table: which rows these keys have, which they shall have, and what changes by that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType, BinaryType, BooleanType, DateType, StringType, TimestampNTZType, TimestampType

from headrace.build.glance import Glance
from headrace.build.joins import equal_columns, keep_matching
from headrace.build.lake import Lake
from headrace.build.placing import PLACE, Merged, Target, persisted, place_few, place_many
from headrace.build.removed import DELETED
from headrace.build.versions import comparable
from headrace.build.work import Decide
from headrace.spec.layers import LayerTable
from headrace.tables.spark_columns import named
from headrace.tables.spark_files import FILE, POSITION, JavaObject, plan_files, read_files
from headrace.tables.spark_times import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

Bounds = Mapping[str, tuple[Any, Any, bool]]
"""The least and the greatest value of a column, and whether it is null anywhere."""


def bounds_of(rows: DataFrame, table: LayerTable) -> list[Column]:
    """Gives back the aggregates that `read_bounds` understands: ranges of keys and constant columns."""
    columns: list[Column] = []
    for name in _bounded(rows, table):
        column = named(name)
        as_text = _as_text(rows.schema[name].dataType)
        columns += [
            as_text(F.min(column)).alias(f"__min_{name}"),
            as_text(F.max(column)).alias(f"__max_{name}"),
            F.coalesce(F.max(column.isNull()), F.lit(False)).alias(f"__null_{name}"),
        ]
    return columns


def read_bounds(rows: DataFrame, table: LayerTable, values: Mapping[str, Any]) -> Bounds:
    return {
        name: (values[f"__min_{name}"], values[f"__max_{name}"], bool(values[f"__null_{name}"]))
        for name in _bounded(rows, table)
    }


@contextmanager
def merge(
    lake: Lake,
    java_table: JavaObject,
    table: LayerTable,
    *,
    columns: Sequence[str],
    snapshot_id: int | None,
    rows: DataFrame,
    touched: DataFrame | None,
    decide: Decide,
    glance: Glance,
    bounds: Bounds,
    build_id: int,
    few: bool,
) -> Iterator[tuple[Merged, DataFrame | pa.Table]]:
    """Gives the files of the merge, staged, and the old rows that changed (with `_tombstone`), while the block runs.

    `touched` are the keys whose rows are decided again; None stands for all. A row that stays as it is keeps the build that
    wrote it, whatever file it moves to. With `few`, what changes is put in place as Arrow.
    """
    candidates = plan_files(java_table, snapshot_id=snapshot_id, where=_expression(lake.spark, bounds))
    with read_files(lake.spark, java_table, candidates, with_positions=True) as all_old:
        row_key = [*table.keys, *table.sequence_by] if table.kind == "history" else list(table.keys)
        old = all_old if touched is None else keep_matching(all_old, touched, table.keys)
        old = old.select(*map(named, (*columns, FILE, POSITION)))
        target = Target(lake, java_table, table, snapshot_id, candidates, columns=columns, build_id=build_id)
        with nullcontext(old) if few else persisted(old) as old:
            known = old.drop(FILE, POSITION).withColumn(DELETED, F.lit(False))
            verdicts = _compare(decide(rows, known, glance), old, row_key=row_key, columns=columns)
            if few:
                yield place_few(target, verdicts)
            else:
                with persisted(verdicts) as kept:
                    yield place_many(target, kept)


def _compare(desired: DataFrame, old: DataFrame, *, row_key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Gives back what changes: `new` and `old` rows, either of which may be missing, and the place of the old one.

    A row of `desired` with `_tombstone` is no new row; it is the `deletion` itself.
    """
    chosen = [named(name) for name in columns]
    right = F.struct(*(comparable(old, name) for name in columns))
    left = F.struct(*(comparable(desired, name) for name in columns))
    new = desired.select(
        F.struct(*chosen).alias("row"),
        left.alias("new_value"),
        F.col(DELETED),
        *(named(name).alias(f"new_{index}") for index, name in enumerate(row_key)),
    )
    was = old.select(
        F.struct(*chosen).alias("old"),
        right.alias("old_value"),
        named(FILE).alias(PLACE[0]),
        named(POSITION).alias(PLACE[1]),
        *(named(name).alias(f"old_{index}") for index, name in enumerate(row_key)),
    )
    keys = {f"new_{index}": f"old_{index}" for index in range(len(row_key))}
    both = new.join(was, equal_columns(keys), "full_outer")
    is_row = F.col("row").isNotNull() & ~F.col(DELETED)
    same = is_row & F.col("old").isNotNull() & F.col("new_value").eqNullSafe(F.col("old_value"))
    changed = both.where(~F.coalesce(same, F.lit(False)))
    return changed.select(
        F.when(is_row, F.col("row")).alias("new"),
        F.when(F.col(DELETED), F.col("row")).alias("deletion"),
        F.col("old"),
        *map(named, PLACE),
    )


def _bounded(rows: DataFrame, table: LayerTable) -> list[str]:
    """Gives back the columns whose ranges say which files can hold a key: strings are spread all over."""
    names = dict.fromkeys((*table.keys, *table.constant))
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return [
        name
        for name in names
        if isinstance(kinds[name], AtomicType)
        and not isinstance(kinds[name], (BinaryType, BooleanType))
        and (name in table.constant or not isinstance(kinds[name], StringType))
    ]


def _as_text(kind: DataType) -> Any:
    """Gives back how a value of a column becomes what Iceberg's expressions take."""
    if isinstance(kind, TimestampType):
        return lambda column: F.date_format(column, TIMESTAMP)
    if isinstance(kind, TimestampNTZType):
        return lambda column: F.date_format(column, TIMESTAMP_NTZ)
    if isinstance(kind, DateType):
        return lambda column: column.cast("string")
    return lambda column: column


def _expression(spark: SparkSession, bounds: Bounds) -> JavaObject | None:
    """Gives back the condition that a file must be able to satisfy to hold a touched key."""
    expressions = spark._jvm.org.apache.iceberg.expressions.Expressions  # type: ignore[union-attr]
    found = None
    for name, (least, greatest, has_null) in bounds.items():
        parts = []
        if least is not None:
            parts.append(
                getattr(expressions, "and")(
                    expressions.greaterThanOrEqual(name, least), expressions.lessThanOrEqual(name, greatest)
                )
            )
        if has_null or least is None:
            parts.append(expressions.isNull(name))
        either = parts[0] if len(parts) == 1 else getattr(expressions, "or")(*parts)
        found = either if found is None else getattr(expressions, "and")(found, either)
    return found
