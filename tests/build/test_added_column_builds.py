"""Tables with own columns named like the ones that Headrace adds: builds, plans and readers distinguish them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.build.definition import definition_of
from headrace.build.reads import StoredColumns
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.metadata.quarantine import QUARANTINE
from headrace.iceberg.schema import added_columns as stored
from headrace.iceberg.schema.added_columns import added_columns
from headrace.serving.sql.query import run_query
from headrace.sessions.building import plan
from headrace.spec.model.layers import BUILD_ID, CARRIED, STATE
from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.lineage import trace_lineage
from tests.build.layer_lake import Event, LayerLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ADDRESSES = """/*
keys: [k]
sequence_by: n
expect:
  the amount is positive: {that: amount > 0, on_failure: quarantine}
*/
SELECT k, n, g AS _state, op AS _carried, amount FROM pond.events"""
BY_STATE = "/*\nkeys: [place]\n*/\nSELECT _state AS place, count(*) AS addresses FROM pond.addresses GROUP BY _state"
MOVES = """/*
keys: [k]
sequence_by: n
stored_as_scd_type: 2
track_history_except_column_list: [amount]
*/
SELECT k, n, g AS _state, op AS _carried, amount FROM pond.events"""
FILES = {"a/addresses.sql": ADDRESSES, "a/moves.sql": MOVES, "b/by_state.sql": BY_STATE}


def event(number: int, *, state: str, op: str = "u", cents: int = 100) -> Event:
    return Event(f"e{number}", "k1", state, number, cents, op, number)


@pytest.fixture
def layer_lake(spark: SparkSession, tmp_path: Path) -> LayerLake:
    layer_lake = LayerLake(tmp_path, spark, FILES)
    layer_lake.land([event(1, state="NY"), event(2, state="OH", cents=-5)])
    layer_lake.build()
    return layer_lake


def test_own_columns_with_reserved_names_are_visible_downstream(layer_lake: LayerLake) -> None:
    rows = run_query(layer_lake.catalog, "SELECT * EXCLUDE (_build_id, amount) FROM pond.addresses").to_pylist()
    assert rows == [{"k": "k1", "n": 1, STATE: "NY", CARRIED: "u"}]
    table = layer_lake.catalog.load_table("pond.addresses")
    assert added_columns(table) == {BUILD_ID}
    assert read_build(table).added_columns == (BUILD_ID,)
    known = StoredColumns.of(layer_lake.catalog, layer_lake.pipeline).columns[TableName("pond", "addresses")]
    assert [column.name for column in known] == ["k", "n", STATE, CARRIED, "amount"]
    traced = trace_lineage(layer_lake.pipeline).table(TableName("pond", "by_state"))
    assert traced is not None
    assert [str(source) for source in traced.columns[0].sources] == [f"pond.addresses.{STATE}"]


def test_quarantined_row_has_its_own_columns(layer_lake: LayerLake) -> None:
    rows = layer_lake.catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
    (row,) = [json.loads(row["original_bytes"]) for row in rows if row["stream"] == "pond.addresses"]
    assert (row[STATE], row[CARRIED]) == ("OH", "u")


def test_history_tracks_its_own_columns(layer_lake: LayerLake) -> None:
    layer_lake.land([event(3, state="OH", op="x"), event(4, state="OH", op="x", cents=7)])
    layer_lake.build()
    rows = run_query(layer_lake.catalog, "SELECT n, _carried FROM pond.moves ORDER BY n").to_pylist()
    assert rows == [{"n": 1, CARRIED: "u"}, {"n": 2, CARRIED: "u"}, {"n": 3, CARRIED: "x"}]


def test_only_an_aggregate_has_states(layer_lake: LayerLake) -> None:
    plans = {
        str(planned.table.table): planned.has_states
        for planned in plan(layer_lake.settings, layer_lake.pipeline, table=None, full_refresh=False)
    }
    assert plans == {"pond.addresses": False, "pond.moves": False, "pond.by_state": True}
    assert STATE not in run_query(layer_lake.catalog, "SELECT * FROM pond.by_state").column_names
    known = StoredColumns.of(layer_lake.catalog, layer_lake.pipeline).columns[TableName("pond", "by_state")]
    assert [column.name for column in known] == ["place", "addresses"]


def test_earlier_builds_recorded_the_same_digest_of_an_aggregate(layer_lake: LayerLake) -> None:
    layer = next(table for table in layer_lake.pipeline.tables if table.kind == "aggregate")
    assert definition_of(layer).field_digests["kind"] == stored._AGGREGATE
