"""The currencies of ISO 4217 as pycountry knows them, and the unit that each is counted in."""

from __future__ import annotations

from decimal import Decimal

import pycountry
from pyspark.sql import DataFrame, SparkSession

from headrace import table

NONE = ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF")
THREE = ("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND")
DECIMALS = {**dict.fromkeys(NONE, 0), **dict.fromkeys(THREE, 3), "CLF": 4, "UYW": 4}
"""How many decimals ISO 4217 gives a currency, where it is not two."""
STRIPE_DECIMALS = {"ISK": 2, "UGX": 2, "MGA": 0}
"""Where Stripe counts in another unit than ISO 4217: two kept their hundredths, and the ariary has none."""


@table(kind="full")
def iso_currencies(spark: SparkSession) -> DataFrame:
    """Every currency that ISO 4217 names today; `stripe_unit` is what 1 is worth in an amount of Stripe's."""
    rows = []
    for each in pycountry.currencies:
        decimals = DECIMALS.get(each.alpha_3, 2)
        unit = Decimal(1).scaleb(-STRIPE_DECIMALS.get(each.alpha_3, decimals))
        rows.append((each.alpha_3, each.numeric, each.name, decimals, unit))
    columns = "code STRING, numeric STRING, name STRING, decimals INT, stripe_unit DECIMAL(5, 4)"
    return spark.createDataFrame(sorted(rows), columns)
