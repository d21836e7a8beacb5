"""Build histories: keep every version of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.build.events import with_epochs
from headrace.build.fill_unchanged import carry_values, own_events
from headrace.build.plan import TablePlan
from headrace.build.strategies.merged_events import MergedEvents
from headrace.build.versions import history_of_keys, newest_of_keys
from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable
from headrace.spec.model.types import Column, Primitive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class History(MergedEvents):
    """Keeps a row for every event of a key except deletes; a delete or a truncate ends a version."""

    version_columns = HISTORY_COLUMNS

    def describe(self, plan: TablePlan) -> str:
        return "keeps every version of a key: merges new events with the existing versions"

    def readable_columns(self, table: LayerTable, rows: DataFrame, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        time = next(column.type for column in columns if column.name == table.versioned_by)
        start, end, current = HISTORY_COLUMNS
        return (*columns, Column(start, time), Column(end, time), Column(current, Primitive("boolean")))

    def events_of_rows(self, table: LayerTable, rows: DataFrame) -> DataFrame:
        return own_events(table, rows)

    def needs_recorded(self, older: int) -> bool:
        return True  # they end versions

    def reduce_events(
        self, table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, fill_omitted: bool
    ) -> DataFrame:
        """Reduce events to the versions of each key."""
        events = newest_of_keys(events, keys=table.row_key, sequence_by=table.sequence_by)
        events = with_epochs(table, events, truncates)
        events = carry_values(table, events) if fill_omitted else events
        return history_of_keys(events, table=table)
