"""Random builds on the local path, on the scanned path, or switching in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from headrace.build import local_inputs, local_tables, parts
from headrace.build import plan as planning
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.staged_build import StagedBuild
from headrace.build.strategies import aggregate
from headrace.build.strategies.strategy import IncrementalStrategy
from headrace.iceberg.rows import row_store
from headrace.spec.model.types import Column


@contextmanager
def counted_paths() -> Iterator[Counter[str]]:
    """Yield how often increments were computed by each kind of inputs, while the block runs."""
    taken: Counter[str] = Counter()
    stage = IncrementalStrategy.stage

    def counted(
        strategy: IncrementalStrategy, inputs: PlannedInputs, build_id: int, *, rescaled: tuple[Column, ...] = ()
    ) -> StagedBuild:
        result = stage(strategy, inputs, build_id, rescaled=rescaled)
        if inputs.plan.action == "increment":
            taken[type(inputs).__name__] += 1
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IncrementalStrategy, "stage", counted)
        yield taken


@contextmanager
def scanned_refreshes() -> Iterator[None]:
    """Run refreshes on Spark's scans while the block runs, however few rows there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePlan, "refreshes_few", property(lambda plan: False))
        yield


@contextmanager
def scanned_builds() -> Iterator[None]:
    """Run all builds on Spark's scans while the block runs, however few rows there are."""
    with scanned_refreshes(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePlan, "reads_few", property(lambda plan: False))
        yield


@contextmanager
def random_paths(random: Random, *, scans: float = 0.45) -> Iterator[Counter[str]]:
    """Choose how each build reads, while the block runs; give how often each way was taken to its end.

    Half of `scans` is the chance that a build begins on Spark's scans, the other half that it has to change over to them.

    Lookups are never read whole, and files of more than three rows have an index, however few rows a test has. Aggregates add
    states or compute keys again, and backlogs are built in parts or at once, at random too.
    """
    few = vars(TablePlan)["reads_few"].fget

    def reads_few(plan: TablePlan) -> bool:
        limit = 2 if random.random() < scans / 2 else 100_000
        patch.setattr(local_tables, "MOST_ROWS", limit)
        patch.setattr(local_inputs, "MOST_ROWS", limit)
        patch.setattr(aggregate, "FEW_ROWS_OF_KEYS", random.choice([0, 5_000]))
        patch.setattr(planning, "PART_ROWS", random.choice([8, 20, 50_000]))
        return bool(few(plan)) and random.random() >= scans / 2

    with pytest.MonkeyPatch.context() as patch, counted_paths() as taken:
        patch.setattr(TablePlan, "reads_few", property(reads_few))
        patch.setattr(parts, "MOST_PARTS", 1_000)
        patch.setattr(local_inputs, "SMALL_LOOKUP", 0)
        patch.setattr(row_store, "SMALL_ROWS", 3)
        patch.setattr(row_store, "_FILE_IN_MEMORY_ROWS", 10)
        yield taken
