"""What every kind of table has to say of its builds: the interface of strategies.

A strategy has no state: all that it works on is passed in. `spec/model/kinds.py` has what is known of a kind without an
engine.
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
    """How tables of one kind are built.

    `can_rescale` says whether a refresh can give a decimal another scale.
    """

    can_rescale: ClassVar[bool] = True

    @abstractmethod
    def describe(self, plan: TablePlan) -> str:
        """Return how the table is kept up to date, for `headrace plan --explain`."""

    @abstractmethod
    def stage(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        """Compute and stage what the plan says: an increment, or a refresh that gives `rescaled` columns their new types."""

    def refresh_instead(self, plan: TablePlan) -> str:
        """Return why a planned increment has to be a refresh; empty where it hasn't."""
        return ""

    def check_query(
        self, spark: SparkSession, table: LayerTable, columns: Mapping[TableName, Sequence[Column]]
    ) -> SpecError | None:
        """Return why tables of this kind can't have such a query, or None. `columns` are those of the inputs, by table."""
        return None

    def readable_columns(self, table: LayerTable, rows: DataFrame, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns that readers see, given those of the query without `except_column_list`.

        `rows` is the query on empty inputs. Raises a SpecError for a column that tables of this kind can't have.
        """
        return columns

    def driver_read(self, read: Read, plan: TablePlan, pipeline: Pipeline, known: StoredColumns) -> Read:
        """Return what an increment reads of a driver besides its changed rows."""
        return read

    def settle(self, table: LayerTable, events: DataFrame, truncates: Sequence[DataFrame], *, carry: bool) -> DataFrame:
        """Return the rows that the table has of these: all, or the only one of each key.

        `truncates` and `carry` are for kinds whose rows are events.
        """
        return one_of_keys(events, keys=table.keys) if table.keys else events

    def refresh(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        """Stage all rows again, in place of the old ones."""
        if isinstance(inputs, LocalInputs):
            return refresh_few(inputs, build_id, settle=self.settle)
        return refresh(inputs, build_id, settle=self.settle, rescaled=rescaled)


class IncrementalStrategy(Strategy):
    """How tables are built whose increments write only what changes."""

    @abstractmethod
    def increment(self, inputs: PlannedInputs, build_id: int) -> StagedBuild:
        """Stage what changes of the table, given what changed of its inputs."""

    def stage(self, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()) -> StagedBuild:
        if inputs.plan.action == "refresh":
            return self.refresh(inputs, build_id, rescaled=rescaled)
        return self.increment(inputs, build_id)
