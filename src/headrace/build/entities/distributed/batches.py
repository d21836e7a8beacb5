"""Run polars functions on the executors, on Arrow batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


def on_batches(transform: Callable[[pl.DataFrame], pl.DataFrame], kind: StructType) -> Callable[[Column], Column]:
    """Return a function from a struct column to a struct of type `kind`, computed by `transform`.

    `transform` must return the rows in the same order. Only the fields of the struct are sent to Python.
    """
    schema = to_arrow_schema(kind)

    def run(rows: pa.Array) -> pa.Array:
        result = transform(pl.DataFrame(pa.RecordBatch.from_struct_array(rows))).select(schema.names)
        table = result.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)
        return pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(schema))

    function: Callable[[Column], Column] = arrow_udf(run, returnType=kind)  # type: ignore[call-overload]
    return function
