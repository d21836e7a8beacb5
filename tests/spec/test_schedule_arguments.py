"""The text of a Python table's file without `target_lag` and `snapshots_for`, which change no row."""

from __future__ import annotations

import pytest

from headrace.spec.loading.schedule_arguments import without_schedule


@pytest.mark.parametrize(
    ("written", "without"),
    [
        ('@table(keys=["id"], target_lag="1m")', '@table(keys=["id"])'),
        ('@table(target_lag="1m", keys=["é"])', '@table(keys=["é"])'),
        ('@table(keys=["é"], target_lag="1m", constant=["n"])', '@table(keys=["é"], constant=["n"])'),
        ('@table(\n    keys=["id"],\n    target_lag="1m",\n)', '@table(\n    keys=["id"],\n)'),
        ('@table(target_lag="1m")', "@table"),
        ('@table(keys=["id"], snapshots_for="7d")', '@table(keys=["id"])'),
        ('@table(snapshots_for="7d", target_lag="1m")', "@table"),
        ('@table(target_lag="1m", keys=["id"], snapshots_for="7d", constant=["n"])', '@table(keys=["id"], constant=["n"])'),
    ],
)
def test_schedule_is_removed_from_a_python_file(written: str, without: str) -> None:
    body = '\ndef rows(events):\n    """target_lag and snapshots_for"""\n    return events\n'
    assert without_schedule(written + body) == without + body
    assert without_schedule(without + body) == without + body
