"""What a wheel has in it, without building one."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


def test_wheel_has_the_marker_that_headrace_is_typed() -> None:
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert "headrace/py.typed" in files
    assert "headrace/logs/setup.py" in files
