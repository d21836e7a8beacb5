"""Expectations in a table's settings: what they do with failing rows, and the spelling of 0.1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.spec import load_pipeline
from headrace.spec.model.layers import LayerTable
from tests.support.folders import write_files

FILES = {
    "pipeline.yml": """name: mine
about: Orders.
streams:
  orders: {topic: orders, format: json, schema: schemas/order.sql, table: raw.orders}
""",
    "schemas/order.sql": "id LONG, n LONG",
}


def load_table(folder: Path, *expectations: str) -> LayerTable:
    expect = "\n".join(f"  rule {number}: {text}" for number, text in enumerate(expectations))
    write_files(
        folder / "pipelines/mine", {**FILES, "shape/rows.sql": f"/*\nexpect:\n{expect}\n*/\nSELECT id, n FROM raw.orders"}
    )
    (table,) = load_pipeline("mine", environ={}, folder=folder).tables
    return table


def test_expectation_warns_unless_it_says_otherwise(tmp_path: Path) -> None:
    words = ("warn", "drop", "quarantine", "fail")
    table = load_table(tmp_path, "n > 0", "{that: n > 0}", *(f"{{that: n > 0, on_failure: {word}}}" for word in words))
    assert [expectation.on_failure for expectation in table.expectations] == ["warn", "warn", *words]


def test_former_spelling_loads_the_same_table(tmp_path: Path) -> None:
    words = ("warn", "drop", "quarantine", "fail")
    table = load_table(tmp_path, *(f"{{that: n > 0, on_failure: {word}}}" for word in words))
    for key, first in (("otherwise", "count"), ("otherwise", "warn"), ("on_failure", "count")):
        former = load_table(tmp_path, *(f"{{that: n > 0, {key}: {word}}}" for word in (first, *words[1:])))
        assert former.source != table.source
        assert replace(former, source=table.source) == table


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{that: n > 0, on_failure: warn, otherwise: drop}", 'duplicate key "on_failure"'),
        ("{that: n > 0, on_failure: explode}", 'invalid value "explode" for "on_failure"'),
        ("{that: n > 0, otherwise: explode}", 'invalid value "explode" for "on_failure"'),
        ("{that: n > 0, on_failur: warn}", 'unknown key "on_failur"'),
    ],
)
def test_mistakes_name_the_current_spelling(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        load_table(tmp_path, text)
    message = str(refused.value)
    assert problem in message
    assert '"otherwise"' not in message
    assert "count" not in message
