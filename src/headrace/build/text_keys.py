"""Convert the values of join columns that a query compares as text to the type of the joined column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StringType, StructField, StructType

from headrace.build.planned_inputs import NotLocalError
from headrace.build.rows import LocalRows, Rows, SparkRows
from headrace.build.types import spark_schema
from headrace.spark.columns import named
from headrace.spec.model.types import Column
from headrace.spec.sql.join_paths import TEXT, JoinPath, plain_column

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_INTEGERS: Mapping[type, type[pl.DataType]] = {
    ByteType: pl.Int8,
    ShortType: pl.Int16,
    IntegerType: pl.Int32,
    LongType: pl.Int64,
}
"""Types of numbers with a single text form, which is the same in Spark and polars."""


def values_for(path: JoinPath, rows: Rows, columns: tuple[Column, ...]) -> Rows:
    """Return the lookup values in a join path's table for these rows of its source."""
    return join_values(rows, dict(zip(path.columns, path.source_columns, strict=True)), columns, nulls_match=path.nulls_match)


def join_values(rows: Rows, pairs: Mapping[str, str], columns: tuple[Column, ...], *, nulls_match: bool) -> Rows:
    """Return the values of a joined table's columns in the rows that match these rows.

    `pairs` maps each column of the joined table to the column of the rows that it equals. If one ends with `TEXT`, they are
    compared as text: a text becomes the only value of the joined column's type (in `columns`) with this text form, or null.
    Raise a NotLocalError if only Spark can convert the type to text.
    """
    compared = list({plain_column(joined): (joined, own) for joined, own in pairs.items()}.values())
    types = spark_schema(columns)
    if not any(name.endswith(TEXT) for pair in compared for name in pair):
        chosen = rows.select(dict(compared))
    elif isinstance(rows, LocalRows):
        chosen = _convert_locally(rows, compared, types)
    else:
        chosen = SparkRows(rows.frame.select(*(_converted(joined, own, types) for joined, own in compared)))
    # Texts without a value in the joined column became null, and must not match nulls.
    return chosen if nulls_match else _without_nulls(chosen)


def _converted(joined: str, own: str, types: StructType) -> SparkColumn:
    name = plain_column(joined)
    value = named(plain_column(own)).cast("string") if own.endswith(TEXT) else named(own)
    if joined.endswith(TEXT):
        text, kind = value.cast("string"), types[name].dataType
        typed = text.try_cast(kind)
        value = F.when(typed.cast("string") == text, typed)
    return value.alias(name)


def _convert_locally(rows: LocalRows, pairs: Sequence[tuple[str, str]], types: StructType) -> LocalRows:
    arrays, fields = [], []
    for joined, own in pairs:
        name, column = plain_column(joined), plain_column(own)
        array, kind = rows.arrow[column], rows.schema[column].dataType
        if own.endswith(TEXT):
            array, kind = _to_text(array, kind), StringType()
        if joined.endswith(TEXT):
            wanted = types[name].dataType
            array, kind = _from_text(_to_text(array, kind), wanted), wanted
        arrays.append(array)
        fields.append(StructField(name, kind))
    table = pa.Table.from_arrays(arrays, names=[field.name for field in fields])
    return LocalRows(rows.spark, table, StructType(fields))


def _to_text(array: pa.ChunkedArray, kind: object) -> pa.ChunkedArray:
    if not isinstance(kind, (StringType, *_INTEGERS)):
        raise NotLocalError(f"only Spark can convert {kind} to text")
    return array.cast(pa.large_string())


def _from_text(array: pa.ChunkedArray, kind: object) -> pa.ChunkedArray:
    """Return the values of a type with these text forms, and null for texts that are no value's text form."""
    if isinstance(kind, StringType):
        return array
    if type(kind) not in _INTEGERS:
        raise NotLocalError(f"only Spark can parse {kind} from text")
    texts = pl.Series(array)
    numbers = texts.cast(_INTEGERS[type(kind)], strict=False)
    return pa.chunked_array([numbers.set(numbers.cast(pl.String) != texts, None).to_arrow()])


def _without_nulls(rows: Rows) -> Rows:
    if isinstance(rows, LocalRows):
        return replace(rows, arrow=rows.arrow.drop_null())
    return SparkRows(rows.frame.dropna(how="any"))
