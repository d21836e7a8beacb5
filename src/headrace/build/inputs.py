"""The states of a table's inputs, and reading their rows with Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.types import fit_columns, spark_schema
from headrace.iceberg.catalog.tables import count_rows, load_table
from headrace.iceberg.files.row_counts import rows_written
from headrace.iceberg.files.spark_files import read_snapshot
from headrace.iceberg.ledgers import landing as ledger
from headrace.iceberg.ledgers.build import KEY, BuildLedger, InputState, read_build
from headrace.iceberg.ledgers.landing import ancestors, read_ledger
from headrace.iceberg.ledgers.replay import read_replay
from headrace.spark.columns import named
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT = "checkpoint_id"


def is_raw(name: TableName, pipeline: Pipeline) -> bool:
    """Return whether a table is landed instead of built."""
    return any(stream.table == name for stream in pipeline.streams)


def position_column(name: TableName, pipeline: Pipeline) -> str:
    """Return the column with a row's position: the checkpoint of a landed row, or the build id of a built row."""
    return CHECKPOINT if is_raw(name, pipeline) else BUILD_ID


def state_of(table: Table | None, *, raw: bool) -> InputState:
    """Return the current state of an input. A missing table is like an empty one."""
    if table is None:
        return InputState()
    current = table.current_snapshot()
    snapshot_id = current.snapshot_id if current else None
    rows = count_rows(table)
    if raw:
        ledger = read_ledger(table)
        replays = read_replay(table).count
        return InputState(snapshot_id, ledger.checkpoint_id, ledger.rollbacks, rows, ledger.erasures, replays)
    entry = read_build(table)
    return InputState(snapshot_id, entry.changed_in, entry.generation, rows, entry.erasures, entry.replays, entry.removed_in)


def input_states(catalog: Catalog, pipeline: Pipeline, names: tuple[TableName, ...]) -> Mapping[TableName, InputState]:
    return {name: state_of(load_table(catalog, name), raw=is_raw(name, pipeline)) for name in names}


def count_new_rows(catalog: Catalog, pipeline: Pipeline, name: TableName, since: InputState, until: InputState) -> int:
    """Return how many rows of an input were added or changed between two states.

    If the snapshots in between were expired, it is the number of rows by which the input grew.
    """
    table = None if since.is_at(until) else load_table(catalog, name)
    if table is None:
        return 0
    raw, rows = is_raw(name, pipeline), 0
    newest = table.snapshot_by_id(until.snapshot_id) if until.snapshot_id is not None else None
    for snapshot in ancestors(table, newest):
        if snapshot.snapshot_id == since.snapshot_id:
            return rows
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if raw:
            rows += rows_written(snapshot) if ledger.KEY in summary else 0
        elif KEY in summary:
            rows += BuildLedger.from_json(summary[KEY]).rows_written
    return max(0, until.rows - since.rows)


def read_input(
    spark: SparkSession, name: TableName, state: InputState, *, columns: tuple[Column, ...], with_position: str | None = None
) -> DataFrame:
    """Return these columns of an input's rows at a state.

    Columns and nested fields that were added later are null, and types that were widened later are the wider ones.
    """
    schema = spark_schema(columns)
    if state.snapshot_id is None:
        empty = spark.createDataFrame([], schema)
        extra = with_position and with_position not in schema.names
        return empty.withColumn(with_position, F.lit(None).cast("long")) if with_position and extra else empty
    rows = read_snapshot(spark, name, state.snapshot_id)
    chosen = [column.alias(name) for name, column in fit_columns(rows, schema).items()]
    if with_position and with_position not in schema.names:
        chosen.append(named(with_position))
    return rows.select(*chosen)
