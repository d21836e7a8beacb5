"""Builds that take the local path, the scanned path, or change over in the middle, at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from headrace.build import build, local_inputs, local_tables
from headrace.build.plan import TablePlan
from headrace.build.planned_inputs import PlannedInputs
from headrace.tables import row_store


@contextmanager
def random_paths(random: Random) -> Iterator[Counter[str]]:
    """Choose how each build reads, while the block runs; give how often each way was taken to its end.

    Lookups are never read whole, and files of more than three rows have an index, however few rows a test has.
    """
    taken: Counter[str] = Counter()
    few, increment = vars(TablePlan)["changes_few"].fget, build._increment

    def changes_few(plan: TablePlan) -> bool:
        limit = random.choice([2, 200_000, 200_000, 200_000])
        patch.setattr(local_tables, "MOST_ROWS", limit)
        patch.setattr(local_inputs, "MOST_ROWS", limit)
        return bool(few(plan)) and random.random() < 0.8

    def counted(inputs: PlannedInputs, build_id: int) -> object:
        result = increment(inputs, build_id)
        taken[type(inputs).__name__] += 1
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePlan, "changes_few", property(changes_few))
        patch.setattr(build, "_increment", counted)
        patch.setattr(local_inputs, "SMALL_LOOKUP", 0)
        patch.setattr(row_store, "SMALL_ROWS", 3)
        yield taken
