"""Merge new events with a table's rows as if all had arrived at once: the common part of upserts and histories."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.batch_stats import BatchStats
from headrace.build.events import expectations_of, split_truncates
from headrace.build.fill_unchanged import without_carried
from headrace.build.merge_keys import merge_keys
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.removed import DELETED
from headrace.build.staged_build import StagedBuild
from headrace.build.strategies.strategy import IncrementalStrategy
from headrace.build.work import ComputedKeys, Decide, Work, driver_changes, recompute, recorded_truncates
from headrace.quality.expectations import measure
from headrace.spec.model.layers import LayerTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class MergedEvents(IncrementalStrategy):
    """Builds tables from events of keys in the order of `sequence_by`: upserts, deletes and truncates.

    `reduce_events` adds the `version_columns` to events.
    """

    version_columns: ClassVar[tuple[str, ...]] = ()

    def increment(self, inputs: PlannedInputs, build_id: int) -> StagedBuild:
        table, changes = inputs.table, driver_changes(inputs)
        if not changes.only_new or table.untracked or table.computes_whole_keys:
            return merge_keys(inputs, recompute(inputs, changes, self.reduce_events), build_id)
        rows = measure(inputs.run(changes.rows), expectations_of(table))
        return merge_keys(inputs, Work(ComputedKeys(rows), self._decide(inputs), meets_old=True), build_id)

    @abstractmethod
    def events_of_rows(self, table: LayerTable, rows: DataFrame) -> DataFrame:
        """Return the table's rows (with `_tombstone`) as their original events, without the values that these omitted."""

    @abstractmethod
    def needs_recorded(self, older: int) -> bool:
        """Return whether recorded deletes or truncates can affect the build; `older` events may precede them."""

    def _decide(self, inputs: PlannedInputs) -> Decide:
        table, entry = inputs.table, inputs.plan.entry
        own = self.version_columns
        columns = tuple(column for column in inputs.lake.columns[table.table] if column.name not in own)

        def decide(rows: DataFrame, old: DataFrame, batch_stats: BatchStats) -> DataFrame:
            rows, truncated = split_truncates(table, rows)
            fill_omitted = table.unchanged is not None and (batch_stats.omitted + entry.rows_carried) > 0
            old = old.drop(*self.version_columns)
            if fill_omitted:
                events = rows.unionByName(self.events_of_rows(table, old))
            elif table.unchanged:
                events = without_carried(rows, like=old).unionByName(old)
            else:
                events = rows.unionByName(old)
            if table.apply_as_deletes and (self.needs_recorded(batch_stats.before_deletes) or not entry.knows_deletes):
                deletes = inputs.recorded_deletes(columns, keys=events if batch_stats.truncates else rows)
                if deletes is not None:
                    events = events.unionByName(deletes.withColumn(DELETED, F.lit(True)), allowMissingColumns=True)
            recorded = recorded_truncates(inputs) if self.needs_recorded(batch_stats.before_truncates) else None
            truncates = (truncated if batch_stats.truncates else None, recorded)
            return self.reduce_events(
                table, events, tuple(rows for rows in truncates if rows is not None), fill_omitted=fill_omitted
            )

        return decide
