"""The payments tables by plain queries over everything that landed: what any way to build them must come to.

It is compared with what the engine builds. Each SQL file is run as it stands, with its macros expanded, on views of its inputs,
and then the newest row of a key is kept where the file says `sequence_by`. History's own columns are left to the engine.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.iceberg.schema.columns import iceberg_schema
from headrace.sources.encode import encoder_of
from headrace.sources.generate import FIRST_MOMENT
from headrace.spec import load_pipeline
from headrace.spec.model.columns import landed_columns
from headrace.spec.model.layers import Query
from headrace.spec.model.pipeline import Stream
from tests.pipelines.test_payments_generators import Row, decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESPACE = "payments_db"
LAYERS = ("reference", "cleaned", "core", "features", "marts", "quality")
_NAMED = re.compile(rf"\b{NAMESPACE}\.(\w+)")


@cache
def _expanded() -> Mapping[Path, str]:
    tables = load_pipeline("payments", environ={}, folder=Path.cwd()).tables
    return {table.path: table.source.text for table in tables if isinstance(table.source, Query)}


@dataclass(frozen=True)
class TableFile:
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def settings(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load(self.text[2 : self.text.index("*/")])
        return loaded

    @property
    def query(self) -> str:
        text = _expanded().get(self.path, self.text)
        return text[text.index("*/") + 2 :]

    @property
    def inputs(self) -> set[str]:
        return set(_NAMED.findall(self.query)) if self.path.suffix == ".sql" else set()


def table_files(folder: Path) -> list[TableFile]:
    """Return the files of all layers, each after those it reads."""
    left = [
        TableFile(path) for layer in LAYERS for path in sorted((folder / layer).iterdir()) if path.suffix in (".sql", ".py")
    ]
    names, done, ordered = {file.name for file in left}, set[str](), list[TableFile]()
    while left:
        ready = [file for file in left if file.inputs & names <= done]
        assert ready, f"{[file.name for file in left]} read one another"
        ordered += ready
        done |= {file.name for file in ready}
        left = [file for file in left if file.name not in done]
    return ordered


def raw_rows(stream: Stream, events: Sequence[Row], *, first: int = 0, checkpoint_id: int = 1) -> pa.Table:
    """Return what lands of events, counted from `first`: number i is in partition i modulo the number of partitions."""
    encode = encoder_of(stream)
    return landed_rows(stream, [encode(event) for event in events], first=first, checkpoint_id=checkpoint_id)


def landed_rows(stream: Stream, events: Sequence[bytes], *, first: int, checkpoint_id: int) -> pa.Table:
    """Return what lands of messages, none of which is bad."""
    numbers = range(first, first + len(events))
    decoded = decode(stream, list(events))
    assert decoded.bad == {}
    landed = schema_to_pyarrow(iceberg_schema(landed_columns(stream)))
    columns = {
        **decoded.columns,
        "kafka_topic": pa.array([stream.topic] * len(events), pa.string()),
        "kafka_partition": pa.array([number % stream.partitions for number in numbers], pa.int32()),
        "kafka_offset": pa.array([number // stream.partitions for number in numbers], pa.int64()),
        "kafka_timestamp": pa.array([FIRST_MOMENT] * len(events), pa.timestamp("us", tz="UTC")),
        "checkpoint_id": pa.array([checkpoint_id] * len(events), pa.int64()),
    }
    return pa.table({name: columns[name] for name in landed.names}).cast(landed)


def landed(spark: SparkSession, stream: Stream, events: Sequence[Row]) -> DataFrame:
    """Return the raw table's rows."""
    return spark.createDataFrame(raw_rows(stream, events))


def rows_of(frame: DataFrame) -> list[Row]:
    """Return rows with the values that the lake's tables return: times know that they are UTC."""
    return list(frame.toArrow().to_pylist())


def build(
    spark: SparkSession, folder: Path, raw: Mapping[str, DataFrame], *, prefix: str, only: str | None = None
) -> dict[str, DataFrame]:
    """Return every table by its name, raw ones too; or just one and its upstream tables."""
    tables, files = dict(raw), table_files(folder)
    if only:
        needed = {only}
        for file in reversed(files):
            needed |= file.inputs if file.name in needed else set()
        files = [file for file in files if file.name in needed]
    for name, rows in raw.items():
        rows.createOrReplaceTempView(f"{prefix}_{name}")
    for file in files:
        tables[file.name] = _build_one(spark, file, prefix).localCheckpoint()
        tables[file.name].createOrReplaceTempView(f"{prefix}_{file.name}")
    return tables


def _build_one(spark: SparkSession, file: TableFile, prefix: str) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    if file.path.suffix == ".py":
        module = importlib.import_module(f"headrace.pipelines.payments.{file.path.parent.name}.{file.name}")
        frame: DataFrame = getattr(module, file.name)(spark)
        return frame
    rows = spark.sql(_NAMED.sub(rf"{prefix}_\1", file.query))
    for sentence, expected in file.settings.get("expect", {}).items():
        that = expected if isinstance(expected, str) else expected["that"]
        if isinstance(expected, dict) and expected.get("on_failure") in ("quarantine", "drop"):
            rows = rows.filter(that)
        assert rows.selectExpr(f"({that}) AS held").schema["held"].dataType.simpleString() == "boolean", sentence
    rows = rows.drop(*file.settings.get("except_column_list", []))
    sequence_by, keys = file.settings.get("sequence_by"), file.settings.get("keys", [])
    if not sequence_by or file.settings.get("stored_as_scd_type") == 2:
        return rows
    others = [name for name in rows.columns if name not in (*keys, sequence_by)]
    newest = Window.partitionBy(*keys).orderBy(col(sequence_by).desc(), *(col(f"`{name}`").desc() for name in others))
    return rows.withColumn("_recency", row_number().over(newest)).filter("_recency = 1").drop("_recency")
