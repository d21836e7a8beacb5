"""The currencies of ISO 4217, as pycountry knows them."""

from __future__ import annotations

import pycountry
from pyspark.sql import DataFrame, SparkSession

from headrace import table


@table(kind="full")
def iso_currencies(spark: SparkSession) -> DataFrame:
    """Every currency that ISO 4217 names today, with its codes of three letters and three digits."""
    rows = [(each.alpha_3, each.numeric, each.name) for each in pycountry.currencies]
    return spark.createDataFrame(sorted(rows), "code STRING, numeric STRING, name STRING")
