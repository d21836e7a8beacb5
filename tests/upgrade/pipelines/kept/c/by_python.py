from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace import table


@table(keys=["g"])
def by_python(present: DataFrame) -> DataFrame:
    """The largest amount of every group."""
    return present.groupBy("g").agg(F.max("amount").alias("largest"))
