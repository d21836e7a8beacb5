"""Maintenance beside a live run: a failing table is reported in a sentence, with its traceback in the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.operations.maintain import maintenance_gate
from headrace.operations.maintain.maintenance_gate import MaintenanceGate, maintained
from headrace.settings import Settings, load_settings
from headrace.spec.model.pipeline import TableName
from tests.support.waiting import wait_until

TARGET = SimpleNamespace(name=TableName("pond", "latest"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(load_settings(flags={}, environ={}, folder=tmp_path), maintain_every_minutes=0)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Have maintenance of the only table fail with an error."""
    monkeypatch.setattr(maintenance_gate, "open_catalog", lambda settings: None)
    monkeypatch.setattr(maintenance_gate, "open_spark_catalog", lambda spark, settings: None)
    monkeypatch.setattr(maintenance_gate, "list_work", lambda settings, pipelines: [(None, TARGET)])
    monkeypatch.setattr(maintenance_gate, "maintaining", lambda *arguments, **named: nullcontext())

    def fail_with(error: BaseException) -> None:
        def fail(*arguments: object) -> None:
            raise error

        monkeypatch.setattr(maintenance_gate, "maintain_table", fail)

    return fail_with


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (TypeError("a bug\nin a second line"), "TypeError: a bug"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_failure_of_maintenance_is_told_in_a_sentence_and_logged_with_its_traceback(
    settings: Settings, failing: Callable[[BaseException], None], error: BaseException, says: str
) -> None:
    failing(error)
    said: list[str] = []
    spark: Any = None
    with maintained(spark, settings, [], MaintenanceGate(), report=said.append):
        wait_until(lambda: len(said) > 1, what="maintenance goes on after a failure")
    assert said[0] == f"pond.latest: maintenance failed with {says}\nRead the traceback with: headrace logs maintenance"
    text = (settings.logs / "maintenance.log").read_text(encoding="utf-8")
    assert "ERROR pond.latest: maintenance failed\nTraceback (most recent call last):\n" in text
    assert "in fail\n" in text
    assert str(error) in text
