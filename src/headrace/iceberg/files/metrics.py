"""Column statistics of Parquet files, and the choice of columns that get them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

_SAMPLE_ROWS = 2_000


class FileMetrics:
    """Describes the Parquet files of one table to Iceberg."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        names = columns_with_statistics(schema_to_pyarrow(schema))
        properties = {f"write.metadata.metrics.column.{name}": "full" for name in names}
        self._plan = compute_statistics_plan(schema, {"write.metadata.metrics.default": "none", **properties})
        self._ids = parquet_path_to_id_mapping(schema)
        self._spec_id = spec.spec_id

    def describe(self, metadata: pq.FileMetaData, *, uri: str, size: int, partition: Record) -> DataFile:
        """Return the Iceberg entry of a Parquet file from its footer, without reading the file."""
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata, stats_columns=self._plan, parquet_column_mapping=self._ids
        )
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri,
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self._spec_id
        return file


def columns_with_statistics(schema: pa.Schema) -> list[str]:
    """Return the columns of numbers and times, and the topic: on long strings, bounds cost more than pruning saves."""
    return [
        column.name
        for column in schema
        if pa.types.is_integer(column.type)
        or pa.types.is_temporal(column.type)
        or pa.types.is_decimal(column.type)
        or pa.types.is_floating(column.type)
        or column.name == "kafka_topic"
    ]


def columns_with_dictionary(sample: pa.Table) -> list[str]:
    """Return the columns whose values repeat in `sample`: for other columns a dictionary is pure overhead."""
    rows = sample.slice(0, _SAMPLE_ROWS)
    return [
        column.name
        for column in sample.schema
        if not pa.types.is_nested(column.type)
        and pc.count_distinct(rows.column(column.name)).as_py() * 2 <= max(rows.num_rows, 2)
    ]
