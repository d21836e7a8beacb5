"""Null structs with required fields pass from the raw table through the layers: refreshed, merged and in histories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.build.layer_lake import LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = {
    "schemas/event.sql": """k STRING NOT NULL, n INT NOT NULL, part STRUCT<x: INT NOT NULL, y: STRING>,
                            l ARRAY<STRUCT<o: STRUCT<x: INT NOT NULL> NOT NULL>>""",
    "a/latest.sql": "/*\nkeys: [k]\nsequence_by: n\n*/\nSELECT k, n, part, l FROM pond.events",
    "a/versions.sql": "/*\nkeys: [k]\nsequence_by: n\nstored_as_scd_type: 2\n*/\nSELECT k, n, part, l FROM pond.events",
}


@dataclass(frozen=True)
class Nested:
    k: str
    n: int
    part: dict[str, Any] | None
    elements: list[Any] | None

    def row(self) -> dict[str, Any]:
        return {"k": self.k, "n": self.n, "part": self.part, "l": self.elements}


def test_null_structs_with_required_fields_are_built(spark: SparkSession, tmp_path: Path) -> None:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    full = {"x": 1, "y": None}
    first = [Nested("a", 1, None, [None]), Nested("b", 1, full, [{"o": {"x": 2}}, None]), Nested("c", 1, None, [])]
    then = [Nested("a", 2, full, []), Nested("b", 2, None, [None])]
    for events in (first, then):
        layer_lake.land(events)
        layer_lake.build()
    latest = layer_lake.catalog.load_table("pond.latest").scan().to_arrow().to_pylist()
    wanted = {event.k: event.row() for event in (*first, *then)}
    assert {row["k"]: {name: row[name] for name in wanted["a"]} for row in latest} == wanted
    versions = layer_lake.catalog.load_table("pond.versions").scan().to_arrow().to_pylist()
    assert sorted((row["k"], row["n"], row["part"]) for row in versions if row["part"] is None) == [
        ("a", 1, None),
        ("b", 2, None),
        ("c", 1, None),
    ]
    assert len(versions) == 5
