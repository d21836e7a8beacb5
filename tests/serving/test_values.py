"""Values as JSON: valid for any float."""

from __future__ import annotations

import json
import math
from typing import NoReturn

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.cli.render.results import show_rows


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def test_rows_with_floats_that_are_not_finite_are_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    floats = [math.nan, math.inf, -math.inf, 1.5, None]
    rows = pa.table({"x": floats, "inner": [{"y": [value]} for value in floats], "t": ["\x1b[31m", "[b]", ":x:", "", None]})
    show_rows(Console(), rows, as_json=True)
    read = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert [row["x"] for row in read] == ["NaN", "Infinity", "-Infinity", 1.5, None]
    assert [row["inner"]["y"][0] for row in read] == ["NaN", "Infinity", "-Infinity", 1.5, None]
    assert [row["t"] for row in read] == ["\x1b[31m", "[b]", ":x:", "", None]
