"""Add what the new rows of the drivers become."""

from __future__ import annotations

from dataclasses import replace

from headrace.build.local_inputs import LocalInputs
from headrace.build.merge_on_read import stage_new_rows
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.staged_build import (
    StagedBuild,
    first_row,
    refuse_rows,
    write_measured,
    written_columns,
)
from headrace.quality.expectations import Measured, check_results, measure, rows_in
from headrace.tables.spark_arrow import to_arrow
from headrace.tables.spark_columns import named
from headrace.tables.spark_files import load_java_table

_FILES_OF_APPEND = 2


def append(inputs: PlannedInputs, build_id: int) -> StagedBuild:
    """Add what the new rows of the drivers become."""
    table = inputs.table
    new = {name: inputs.changes(name).entered if inputs.moved(name) else inputs.none(name) for name in table.drivers}
    measured = measure(inputs.run(new), table.expectations)
    columns = [named(name) for name in written_columns(inputs)]
    if isinstance(inputs, LocalInputs):
        return _append_few(inputs, measured, build_id)
    result, _ = write_measured(
        inputs,
        load_java_table(inputs.lake.spark, table.table),
        measured,
        lambda rows: rows.select(*columns).coalesce(_FILES_OF_APPEND),
        build_id,
    )
    return result


def _append_few(inputs: PlannedInputs, measured: Measured, build_id: int) -> StagedBuild:
    measured = replace(measured, rows=inputs.once(measured.rows).frame)
    values = first_row(measured.rows.agg(*measured.metrics()))
    results = measured.read_metrics(values)
    check_results(inputs.table, results)
    rows = to_arrow(measured.good.select(*map(named, written_columns(inputs))))
    change = stage_new_rows(inputs.lake.catalog.load_table(str(inputs.table.table)), rows, build_id=build_id)
    return StagedBuild(
        change,
        rows=rows.num_rows,
        gone=0,
        read_bytes=0,
        written_bytes=sum(file.file_size_in_bytes for file in change.added),
        processed=rows_in(values),
        results=results,
        refused=refuse_rows(inputs, measured, results, build_id),
    )
