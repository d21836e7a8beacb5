"""Build upserts: keep the newest row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.build.events import EPOCH, with_epochs
from headrace.build.fill_unchanged import carry_values, events_of_newest
from headrace.build.plan import TablePlan
from headrace.build.strategies.merged_events import MergedEvents
from headrace.build.versions import ORDER, newest_of_keys
from headrace.spec.model.layers import LayerTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Upsert(MergedEvents):
    """Keeps one row for each key: its newest event, unless that is a delete."""

    def describe(self, plan: TablePlan) -> str:
        return "keeps the newest row of each key: merges new events with the existing rows"

    def events_of_rows(self, table: LayerTable, rows: DataFrame) -> DataFrame:
        return events_of_newest(table, rows)

    def needs_recorded(self, older: int) -> bool:
        return older > 0

    def reduce_events(
        self, table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, fill_omitted: bool
    ) -> DataFrame:
        """Reduce events to the newest row of each key. Truncated rows are omitted, even as deletes."""
        if truncates:
            events = with_epochs(table, events, truncates)
        if fill_omitted:
            events = carry_values(table, events)
        newest = newest_of_keys(events, keys=table.keys, sequence_by=table.sequence_by, order=ORDER if fill_omitted else None)
        return newest.where(F.col(EPOCH).isNull()) if truncates else newest
