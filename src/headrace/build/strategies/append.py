"""Build append tables: run the query on new driver rows, and append the result."""

from __future__ import annotations

from headrace.build.local_inputs import LocalInputs, arrow_of
from headrace.build.merge_on_read import stage_new_rows
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.staged_build import StagedBuild, build_of_new_rows, write_measured, written_columns
from headrace.build.strategies.strategy import IncrementalStrategy
from headrace.iceberg.files.spark_files import load_java_table
from headrace.quality.expectations import Measured, check_results, measure
from headrace.spark.columns import named

_FILES_OF_APPEND = 2


class Append(IncrementalStrategy):
    """Appends rows, which never change."""

    def describe(self, plan: TablePlan) -> str:
        return "appends the query's rows for new driver rows"

    def increment(self, inputs: PlannedInputs, build_id: int) -> StagedBuild:
        table = inputs.table
        new = {name: inputs.changes(name).entered if inputs.moved(name) else inputs.none(name) for name in table.drivers}
        measured = measure(inputs.run(new), table.expectations)
        if isinstance(inputs, LocalInputs):
            return _append_few(inputs, measured, build_id)
        return _append_many(inputs, measured, build_id)


def _append_many(inputs: PlannedInputs, measured: Measured, build_id: int) -> StagedBuild:
    columns = [named(name) for name in written_columns(inputs)]
    result, _ = write_measured(
        inputs,
        load_java_table(inputs.lake.spark, inputs.table.table),
        measured,
        lambda rows: rows.select(*columns).coalesce(_FILES_OF_APPEND),
        build_id,
    )
    return result


def _append_few(inputs: LocalInputs, measured: Measured, build_id: int) -> StagedBuild:
    checked = inputs.check(measured)
    check_results(inputs.table, checked.results)
    rows = arrow_of(checked.good).select(written_columns(inputs))
    change = stage_new_rows(inputs.lake, inputs.own_table, rows, build_id=build_id)
    return build_of_new_rows(inputs, checked, change, rows, build_id=build_id)
