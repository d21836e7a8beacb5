"""The staged result of a build before its commit, and the steps that all kinds of builds share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from headrace.build.batch_stats import BatchStats, batch_stats_metrics, read_batch_stats
from headrace.build.checked_rows import CheckedRows
from headrace.build.fill_unchanged import has_unknown
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.target import Merged
from headrace.iceberg.commits.build_commit import FileChanges
from headrace.iceberg.commits.row_delta import RowDelta
from headrace.iceberg.files.spark_files import (
    JavaObject,
    StagedFiles,
    stage_files,
)
from headrace.iceberg.ledgers.build import BuildLedger, CheckedExpectation, TrainedWeights
from headrace.quality.collected_refused import number_rows, read_refused, refused_metrics
from headrace.quality.expectations import Measured, check_results, rows_in
from headrace.quality.refused import stage_refused, stage_refused_rows
from headrace.spark.columns import build_number
from headrace.spec.model.layers import BUILD_ID, CARRIED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CARRIED, _UNKNOWN = "__carried", "__unknown"


@dataclass(frozen=True)
class StagedBuild:
    """The staged changes and statistics of a build before its commit."""

    change: RowDelta | FileChanges
    rows: int
    gone: int
    read_bytes: int
    written_bytes: int
    processed: int
    results: tuple[CheckedExpectation, ...]
    refused: tuple[str, ...]
    batch_stats: BatchStats = field(default_factory=BatchStats)
    carried: int = 0
    unknown: int = 0
    removed: bool = False
    largest_entity: int | None = None
    weights: TrainedWeights | None = None


def write_measured(
    inputs: PlannedInputs,
    java_table: JavaObject,
    measured: Measured,
    shape: Callable[[DataFrame], DataFrame],
    build_id: int,
) -> tuple[StagedBuild, StagedFiles]:
    """Stage the accepted rows, transformed by `shape`, and check the expectations in the same pass.

    A few failed rows are collected in the same pass; many need another one.
    """
    observation, unknown = Observation(), Observation()
    numbered = number_rows(measured)
    metrics = [
        *measured.metrics(),
        *refused_metrics(measured),
        *batch_stats_metrics(inputs.table, measured.rows, BuildLedger()),
    ]
    observed = replace(measured, rows=numbered.rows.observe(observation, *metrics))
    rows = shape(observed.good).withColumn(BUILD_ID, build_number(build_id))
    if inputs.table.unchanged:
        counts = (F.count(CARRIED).alias(_CARRIED), F.count_if(has_unknown(F.col(CARRIED))).alias(_UNKNOWN))
        rows = rows.observe(unknown, *counts)
    staged = stage_files(inputs.lake.spark, java_table, rows)
    values = observation.get
    results = measured.read_metrics(values)
    check_results(inputs.table, results)
    collected = read_refused(measured, values)
    result = StagedBuild(
        FileChanges(staged.files),
        rows=staged.rows,
        gone=0,
        read_bytes=0,
        written_bytes=staged.bytes,
        processed=rows_in(values),
        results=results,
        refused=refuse_rows(inputs, measured.refused if collected is None else collected, results, build_id),
        batch_stats=read_batch_stats(values),
        carried=int(unknown.get[_CARRIED]) if inputs.table.unchanged else 0,
        unknown=int(unknown.get[_UNKNOWN]) if inputs.table.unchanged else 0,
    )
    return result, staged


def build_of_new_rows(
    inputs: PlannedInputs, checked: CheckedRows, change: RowDelta, rows: pa.Table, *, build_id: int
) -> StagedBuild:
    """Return the staged build of a change that writes these rows and reads none of the table's own."""
    return StagedBuild(
        change,
        rows=rows.num_rows,
        gone=0,
        read_bytes=0,
        written_bytes=sum(file.file_size_in_bytes for file in change.added),
        processed=checked.processed,
        results=checked.results,
        refused=refuse_rows(inputs, checked.refused, checked.results, build_id),
    )


def merged_build(
    merged: Merged, processed: int, results: tuple[CheckedExpectation, ...], refused: tuple[str, ...]
) -> StagedBuild:
    return StagedBuild(
        merged.change,
        rows=merged.written,
        gone=merged.gone,
        read_bytes=merged.read_bytes,
        written_bytes=merged.written_bytes,
        processed=processed,
        results=results,
        refused=refused,
        carried=merged.carried,
        unknown=merged.unknown,
    )


def written_columns(inputs: PlannedInputs) -> list[str]:
    """Return the columns that a build computes: the table's own, the sources of carried values, and partial states."""
    names = [column.name for column in inputs.lake.columns[inputs.table.table]]
    return [*names, *([CARRIED] if inputs.table.unchanged else []), *inputs.state_columns]


def refuse_rows(
    inputs: PlannedInputs, refused: DataFrame | pa.Table, results: tuple[CheckedExpectation, ...], build_id: int
) -> tuple[str, ...]:
    """Write the rejected rows to files for the quarantine, and return their paths for the build's ledger entry."""
    if not any(result.on_failure == "quarantine" and result.failed for result in results):
        return ()
    lake, name = inputs.lake, inputs.table.table
    if isinstance(refused, pa.Table):
        return stage_refused_rows(lake.catalog, lake.settings, name, refused, build_id=build_id)
    return stage_refused(lake.spark, lake.catalog, lake.settings, name, refused, build_id=build_id)


def current_snapshot(java_table: JavaObject) -> int | None:
    snapshot = java_table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())
