"""The countries of ISO 3166-1, as pycountry knows them."""

from __future__ import annotations

import pycountry
from pyspark.sql import DataFrame, SparkSession

from headrace import table


@table(kind="full")
def iso_countries(spark: SparkSession) -> DataFrame:
    """Every country that ISO 3166-1 names today, with its codes of two letters, three letters and three digits."""
    rows = [(each.alpha_2, each.alpha_3, each.name, each.numeric) for each in pycountry.countries]
    return spark.createDataFrame(sorted(rows), "alpha_2 STRING, alpha_3 STRING, name STRING, numeric STRING")
