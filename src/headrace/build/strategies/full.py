"""Build full tables: refresh them whenever an input changes."""

from __future__ import annotations

from dataclasses import replace

from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.reads import Read, StoredColumns
from headrace.build.staged_build import StagedBuild
from headrace.build.strategies.strategy import Strategy
from headrace.spec.model.pipeline import Pipeline
from headrace.spec.model.types import Column


class Full(Strategy):
    """Refreshes the table in every build."""

    def describe(self, plan: TablePlan) -> str:
        return "rewrites all rows whenever an input changes"

    def driver_read(self, read: Read, plan: TablePlan, pipeline: Pipeline, known: StoredColumns) -> Read:
        return replace(read, whole="its kind is full")

    def stage(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        return self.refresh(inputs, build_id, rescaled=rescaled)
