"""Values as text, CSV and JSON."""

from __future__ import annotations

import csv
import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import NoReturn

import pyarrow as pa
import pytest
from rich.console import Console

from headrace.cli.render.results import show_rows
from headrace.serving.values import as_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["EUR 1.10", "GBP 2"], "EUR 1.10, GBP 2"),
        ([Decimal("1.10"), None, datetime(2026, 1, 1, tzinfo=timezone.utc)], "1.10, null, 2026-01-01 00:00:00.000000Z"),
        ([], ""),
        ({"a": [1, None], "at": date(2026, 1, 1)}, '{"a": [1, null], "at": "2026-01-01"}'),
        ([{"a": "é"}, {"a": math.nan}], '[{"a": "é"}, {"a": "NaN"}]'),
    ],
)
def test_as_text_joins_lists_and_writes_structs_as_json(value: object, text: str) -> None:
    assert as_text(value, null="null") == text


def test_lists_in_csv_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(Console(), pa.table({"id": [1], "names": [["a, b", "c"]]}), as_csv=True)
    assert list(csv.reader(capsys.readouterr().out.splitlines())) == [["id", "names"], ["1", '["a, b", "c"]']]


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
