"""Build features: recompute the rows whose window a change touches."""

from __future__ import annotations

from dataclasses import replace

from headrace.build.merge_keys import merge_keys
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.reads import Read, StoredColumns
from headrace.build.staged_build import StagedBuild
from headrace.build.strategies.strategy import IncrementalStrategy
from headrace.build.work import ComputedKeys, Work
from headrace.quality.expectations import measure
from headrace.spec.model.layers import LayerTable, Window
from headrace.spec.model.pipeline import Pipeline


class Features(IncrementalStrategy):
    """Computes every row from the preceding rows of its partition within a time window."""

    def describe(self, plan: TablePlan) -> str:
        return "recomputes the rows whose window a change touches"

    def driver_read(self, read: Read, plan: TablePlan, pipeline: Pipeline, known: StoredColumns) -> Read:
        window = _window(plan.table)
        columns = (*window.partition_by, window.order_by)
        return replace(read, columns=columns, values=f"the changed rows' values, within {window.seconds:,.12g} s")

    def increment(self, inputs: PlannedInputs, build_id: int) -> StagedBuild:
        table, driver = inputs.table, inputs.table.drivers[0]
        changes = inputs.changes(driver)
        affected = inputs.around(driver, changes, _window(table))
        rows = affected.choose(inputs.run({driver: affected.context}))
        gone = None if changes.left is None else inputs.keys({driver: changes.left})
        keys = ComputedKeys(measure(rows, table.expectations), left=gone)
        work = Work(keys, lambda rows, *_: self.reduce_events(table, rows, (), fill_omitted=False))
        return merge_keys(inputs, work, build_id)


def _window(table: LayerTable) -> Window:
    assert table.window is not None  # the spec loader requires it for this kind
    return table.window
