"""Keep the newest row of each key."""

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
    """A key has one row: its newest event, unless that deletes it."""

    def describe(self, plan: TablePlan) -> str:
        return "keeps the newest row of each key: new events are merged with the rows that are there"

    def events_of_rows(self, table: LayerTable, rows: DataFrame) -> DataFrame:
        return events_of_newest(table, rows)

    def needs_kept(self, older: int) -> bool:
        return older > 0

    def settle(self, table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, carry: bool) -> DataFrame:
        """Return the newest row of each key. What a truncate took away is not among them, not even as a deletion."""
        if truncates:
            events = with_epochs(table, events, truncates)
        if carry:
            events = carry_values(table, events)
        newest = newest_of_keys(events, keys=table.keys, sequence_by=table.sequence_by, order=ORDER if carry else None)
        return newest.where(F.col(EPOCH).isNull()) if truncates else newest
