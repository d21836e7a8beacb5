"""Functions of polars that run on the executors, on batches of Arrow."""

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


def on_batches(make: Callable[[pl.DataFrame], pl.DataFrame], kind: StructType) -> Callable[[Column], Column]:
    """Return a function of a struct column that gives a struct of this type, computed by `make` row by row.

    `make` must return the rows in their order. Only the fields of the struct are sent to Python.
    """
    schema = to_arrow_schema(kind)

    def run(rows: pa.Array) -> pa.Array:
        made = make(pl.DataFrame(pa.RecordBatch.from_struct_array(rows))).select(schema.names)
        table = made.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema)
        return pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(schema))

    function: Callable[[Column], Column] = arrow_udf(run, returnType=kind)  # type: ignore[call-overload]
    return function
