"""Choose files to compact and snapshots to expire, from metadata only."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.iceberg.catalog.tables import find_catalog
from headrace.iceberg.commits.history import DatedSnapshot
from headrace.iceberg.maintenance.expire import snapshots_to_expire
from headrace.iceberg.maintenance.groups import FEWEST_FILES, FileFacts, choose_groups
from headrace.operations.maintain.maintaining import MaintenanceContext, Target
from headrace.settings import load_settings
from headrace.spec import TableName

TARGET = 1_000
MOST = 4 * TARGET

files = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 2_000), st.sampled_from([0, 0, 0, 0, 3])), max_size=40).map(
    lambda facts_of_files: [FileFacts(f"f{number}", *facts[:1], 10, *facts[1:]) for number, facts in enumerate(facts_of_files)]
)


def group_sizes(*sizes: int, deleted: int = 0) -> list[int]:
    facts = [FileFacts(f"f{number}", "p", 10, size, deleted) for number, size in enumerate(sizes)]
    return [len(group.files) for group in choose_groups(facts, target_bytes=TARGET, most_bytes=MOST)]


@given(files)
def test_choose_groups_takes_each_file_at_most_once(candidates: list[FileFacts]) -> None:
    groups = choose_groups(candidates, target_bytes=TARGET, most_bytes=MOST)
    chosen = [file for group in groups for file in group.files]
    assert len(chosen) == len({file.path for file in chosen})
    assert all(file.deleted or file.bytes < TARGET * 0.75 for file in chosen)
    assert {file.path for file in candidates if file.deleted} <= {file.path for file in chosen}
    assert all(group.bytes <= MOST or len(group.files) == 1 for group in groups)
    for partition in {file.partition for file in chosen}:
        of_it = [file for file in chosen if file.partition == partition]
        assert len(of_it) >= FEWEST_FILES - 1 or any(file.deleted for file in of_it)


def test_choose_groups_compacts_many_small_files_only() -> None:
    assert group_sizes(*[10] * 2_000) == [2_000 // 5] * 5
    assert group_sizes(*[10] * (FEWEST_FILES - 1)) == []
    assert group_sizes(*[900] * 50) == []
    assert group_sizes(5_000, deleted=1) == [1]


@given(st.lists(st.integers(0, 100), unique=True, max_size=30), st.sets(st.integers(0, 29)), st.integers(0, 100))
def test_snapshots_to_expire_never_has_protected_or_young_snapshots(ages: list[int], protected: set[int], before: int) -> None:
    snapshots = [DatedSnapshot(number, age) for number, age in enumerate(ages)]
    dropped = set(snapshots_to_expire(snapshots, protected=protected, before_ms=before))
    assert dropped == {snapshot.snapshot_id for snapshot in snapshots if snapshot.timestamp_ms < before} - protected


def test_snapshots_for_replaces_the_default_retention(tmp_path: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    context, name = MaintenanceContext(settings, find_catalog(settings)), TableName("raw", "events")

    def days(snapshots_for: float | None) -> float:
        before_ms = context.expire_before_ms(Target(name, (), snapshots_for=snapshots_for))
        return (time.time_ns() / 1_000_000 - before_ms) / 86_400_000

    assert days(None) == pytest.approx(settings.maintain_keep_days, abs=0.01)
    assert days(90 * 86_400.0) == pytest.approx(90, abs=0.01)
    assert days(60.0) == pytest.approx(settings.maintain_grace_minutes / 1_440, abs=0.01), "readers that have just started"
