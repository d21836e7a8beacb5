"""The interface of build strategies, one for each kind of table.

A strategy has no state. `spec/model/kinds.py` has the properties of a kind that don't depend on an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.build.local_inputs import LocalInputs
from headrace.build.local_refresh import refresh_few
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.refresh import refresh
from headrace.build.staged_build import StagedBuild
from headrace.build.versions import one_of_keys
from headrace.errors import SpecError
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.build.plan import TablePlan
    from headrace.build.reads import Read, StoredColumns


class Strategy(ABC):
    """Builds tables of one kind.

    `can_rescale` tells whether a refresh can change the scale of a decimal.
    """

    can_rescale: ClassVar[bool] = True

    @abstractmethod
    def describe(self, plan: TablePlan) -> str:
        """Describe how the table is built, for `headrace plan --explain`."""

    @abstractmethod
    def stage(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        """Compute and stage the planned build: an increment, or a refresh, which gives `rescaled` columns their new types."""

    def refresh_instead(self, plan: TablePlan) -> str:
        """Return the reason why a planned increment must be a refresh, or an empty text."""
        return ""

    def check_query(
        self, spark: SparkSession, table: LayerTable, columns: Mapping[TableName, Sequence[Column]]
    ) -> SpecError | None:
        """Return the error if this kind does not support the query, or None. `columns` are the inputs' columns by table."""
        return None

    def readable_columns(self, table: LayerTable, rows: DataFrame, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns that readers see, from the query's columns without `except_column_list`.

        `rows` is the query on empty inputs. Raises SpecError for a column that this kind does not support.
        """
        return columns

    def driver_read(self, read: Read, plan: TablePlan, pipeline: Pipeline, known: StoredColumns) -> Read:
        """Return an increment's read of a driver beyond its changed rows."""
        return read

    def reduce_events(
        self, table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, fill_omitted: bool
    ) -> DataFrame:
        """Reduce events to the table's rows: all of them, or the only row of each key.

        `truncates` and `fill_omitted` are for kinds whose rows are events.
        """
        return one_of_keys(events, keys=table.keys) if table.keys else events

    def refresh(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        """Stage a refresh, which replaces all rows."""
        if isinstance(inputs, LocalInputs):
            return refresh_few(inputs, build_id, reduce_events=self.reduce_events)
        return refresh(inputs, build_id, reduce_events=self.reduce_events, rescaled=rescaled)


class IncrementalStrategy(Strategy):
    """Builds tables whose increments write only changes."""

    @abstractmethod
    def increment(self, inputs: PlannedInputs, build_id: int) -> StagedBuild:
        """Stage the table's changes from the changes of its inputs."""

    def stage(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        if inputs.plan.action == "refresh":
            return self.refresh(inputs, build_id, rescaled=rescaled)
        return self.increment(inputs, build_id)
