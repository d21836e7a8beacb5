"""Refresh an entity table on Spark: the executors resolve and write the rows, and none is collected by the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation

from headrace.build.entities.distributed.pairs import comparable_values, find_pairs
from headrace.build.entities.distributed.records import number_records
from headrace.build.entities.distributed.resolve import resolve_on_spark
from headrace.build.entities.distributed.training import choose_weights_on_spark
from headrace.build.entities.records import rules_of
from headrace.build.entities.weights import fixed_weights, stored_weights
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.staged_build import StagedBuild, current_snapshot, refuse_rows, written_columns
from headrace.build.work import plan_refresh
from headrace.iceberg.commits.build_commit import FileChanges
from headrace.iceberg.files.spark_files import load_java_table, plan_files, read_files, stage_files
from headrace.iceberg.ledgers.build import TrainedWeights
from headrace.quality.expectations import check_results, rows_in
from headrace.spark.checkpoints import Checkpoints
from headrace.spark.columns import build_number, named
from headrace.spec.model.layers import BUILD_ID
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refresh_on_spark(inputs: PlannedInputs, build_id: int) -> StagedBuild:
    """Resolve all records and stage all rows of the table. Existing ids are kept.

    The rows equal the result of `entities.build.refresh_entities` in one process. Checkpoints on the executors are released at
    the end.
    """
    lake, table = inputs.lake, inputs.table
    java_table = load_java_table(lake.spark, table.table)
    current = current_snapshot(java_table)
    files = plan_files(java_table, snapshot_id=current)
    measured, observation = plan_refresh(inputs), Observation()
    observed = replace(measured, rows=measured.rows.observe(observation, *measured.metrics()))
    with Checkpoints() as checkpoints:
        with read_files(lake.spark, java_table, files) as stored:
            known = stored.select(*map(named, (*table.keys, ENTITY_ID, PREVIOUS))) if files.tasks else None
            records = checkpoints.keep(number_records(observed.good, known, table))
        results = measured.read_metrics(observation.get)
        check_results(table, results)
        pairs, weights = _alike(inputs, records, build_id, checkpoints)
        resolved = resolve_on_spark(records, rules_of(table, score=None), pairs=pairs, checkpoints=checkpoints)
        columns = [named(name) for name in written_columns(inputs)]
        rows = resolved.rows.select(*columns, build_number(build_id).alias(BUILD_ID))
        staged = stage_files(lake.spark, java_table, rows)
    return StagedBuild(
        FileChanges(staged.files, tuple(files.tasks.values()), snapshot_id=current),
        rows=staged.rows,
        gone=0,
        read_bytes=files.bytes,
        written_bytes=staged.bytes,
        processed=rows_in(observation.get),
        results=results,
        refused=refuse_rows(inputs, measured.refused, results, build_id),
        largest_entity=resolved.largest_entity,
        weights=weights,
    )


def _alike(
    inputs: PlannedInputs, records: DataFrame, build_id: int, checkpoints: Checkpoints
) -> tuple[DataFrame | None, TrainedWeights | None]:
    """Return the fuzzy matching pairs, and the weights that were trained for them, if any."""
    fuzzy = inputs.table.fuzzy
    if fuzzy is None:
        return None, None
    values = checkpoints.keep(comparable_values(records, fuzzy))
    trained = choose_weights_on_spark(values, fuzzy, version=build_id) if fuzzy.train else None
    weights = stored_weights(fuzzy, trained) if trained else fixed_weights(fuzzy)
    return find_pairs(values, fuzzy, weights, spark=inputs.lake.spark, checkpoints=checkpoints), trained
