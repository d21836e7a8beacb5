"""Values of join columns that a query compares as text, by the type that the joined column has."""

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
"""Numbers that have one way to be written, the same for everybody."""


def values_for(path: JoinPath, rows: Rows, columns: tuple[Column, ...]) -> Rows:
    """Return the values by which the rows of a path's table are found from these rows of its source."""
    return join_values(rows, dict(zip(path.columns, path.source_columns, strict=True)), columns, nulls_match=path.nulls_match)


def join_values(rows: Rows, pairs: Mapping[str, str], columns: tuple[Column, ...], *, nulls_match: bool) -> Rows:
    """Return the values that a joined table's columns have where its rows match these rows.

    `pairs` gives each of its columns the column of the rows that it equals. Where one ends with `TEXT`, texts are compared: a
    value becomes the only value of the joined column's type, of those in `columns`, that is written so, or none. Raise a
    NotLocalError if only Spark writes values of a type as text.
    """
    compared = list({plain_column(theirs): (theirs, mine) for theirs, mine in pairs.items()}.values())
    types = spark_schema(columns)
    if not any(name.endswith(TEXT) for pair in compared for name in pair):
        chosen = rows.select(dict(compared))
    elif isinstance(rows, LocalRows):
        chosen = _convert_locally(rows, compared, types)
    else:
        chosen = SparkRows(rows.frame.select(*(_converted(theirs, mine, types) for theirs, mine in compared)))
    # A value that no row can have became null: it must not match rows without a value.
    return chosen if nulls_match else _without_nulls(chosen)


def _converted(theirs: str, mine: str, types: StructType) -> SparkColumn:
    name = plain_column(theirs)
    value = named(plain_column(mine)).cast("string") if mine.endswith(TEXT) else named(mine)
    if theirs.endswith(TEXT):
        text, kind = value.cast("string"), types[name].dataType
        typed = text.try_cast(kind)
        value = F.when(typed.cast("string") == text, typed)
    return value.alias(name)


def _convert_locally(rows: LocalRows, pairs: Sequence[tuple[str, str]], types: StructType) -> LocalRows:
    arrays, fields = [], []
    for theirs, mine in pairs:
        name, column = plain_column(theirs), plain_column(mine)
        array, kind = rows.arrow[column], rows.schema[column].dataType
        if mine.endswith(TEXT):
            array, kind = _to_text(array, kind), StringType()
        if theirs.endswith(TEXT):
            wanted = types[name].dataType
            array, kind = _from_text(_to_text(array, kind), wanted), wanted
        arrays.append(array)
        fields.append(StructField(name, kind))
    table = pa.Table.from_arrays(arrays, names=[field.name for field in fields])
    return LocalRows(rows.spark, table, StructType(fields))


def _to_text(array: pa.ChunkedArray, kind: object) -> pa.ChunkedArray:
    if not isinstance(kind, (StringType, *_INTEGERS)):
        raise NotLocalError(f"only Spark writes {kind} as text")
    return array.cast(pa.large_string())


def _from_text(array: pa.ChunkedArray, kind: object) -> pa.ChunkedArray:
    """Return the values of a type that are written as these texts, and null for texts that no value is written as."""
    if isinstance(kind, StringType):
        return array
    if type(kind) not in _INTEGERS:
        raise NotLocalError(f"only Spark reads {kind} from text")
    texts = pl.Series(array)
    numbers = texts.cast(_INTEGERS[type(kind)], strict=False)
    return pa.chunked_array([numbers.set(numbers.cast(pl.String) != texts, None).to_arrow()])


def _without_nulls(rows: Rows) -> Rows:
    if isinstance(rows, LocalRows):
        return replace(rows, arrow=rows.arrow.drop_null())
    return SparkRows(rows.frame.dropna(how="any"))
