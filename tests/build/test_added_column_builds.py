"""Tables whose own columns are called like those that Headrace adds: builds, plans and readers keep them apart."""

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
from tests.build.pond import Event, Pond

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ADDRESSES = """/*
keys: [k]
sequence_by: n
expect:
  the amount is positive: {that: amount > 0, otherwise: quarantine}
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
def pond(spark: SparkSession, tmp_path: Path) -> Pond:
    pond = Pond(tmp_path, spark, FILES)
    pond.land([event(1, state="NY"), event(2, state="OH", cents=-5)])
    pond.build()
    return pond


def test_own_columns_are_shown_and_read_on(pond: Pond) -> None:
    rows = run_query(pond.catalog, "SELECT * EXCLUDE (_build_id, amount) FROM pond.addresses").to_pylist()
    assert rows == [{"k": "k1", "n": 1, STATE: "NY", CARRIED: "u"}]
    table = pond.catalog.load_table("pond.addresses")
    assert added_columns(table) == {BUILD_ID}
    assert read_build(table).added_columns == (BUILD_ID,)
    known = StoredColumns.of(pond.catalog, pond.pipeline).columns[TableName("pond", "addresses")]
    assert [column.name for column in known] == ["k", "n", STATE, CARRIED, "amount"]
    traced = trace_lineage(pond.pipeline).table(TableName("pond", "by_state"))
    assert traced is not None
    assert [str(source) for source in traced.columns[0].sources] == [f"pond.addresses.{STATE}"]


def test_quarantined_row_has_its_own_columns(pond: Pond) -> None:
    rows = pond.catalog.load_table(str(QUARANTINE)).scan().to_arrow().to_pylist()
    (row,) = [json.loads(row["original_bytes"]) for row in rows if row["stream"] == "pond.addresses"]
    assert (row[STATE], row[CARRIED]) == ("OH", "u")


def test_history_tracks_its_own_columns(pond: Pond) -> None:
    pond.land([event(3, state="OH", op="x"), event(4, state="OH", op="x", cents=7)])
    pond.build()
    rows = run_query(pond.catalog, "SELECT n, _carried FROM pond.moves ORDER BY n").to_pylist()
    assert rows == [{"n": 1, CARRIED: "u"}, {"n": 2, CARRIED: "u"}, {"n": 3, CARRIED: "x"}]


def test_only_an_aggregate_has_states(pond: Pond) -> None:
    plans = {
        str(each.table.table): each.has_states for each in plan(pond.settings, pond.pipeline, table=None, full_refresh=False)
    }
    assert plans == {"pond.addresses": False, "pond.moves": False, "pond.by_state": True}
    assert STATE not in run_query(pond.catalog, "SELECT * FROM pond.by_state").column_names
    known = StoredColumns.of(pond.catalog, pond.pipeline).columns[TableName("pond", "by_state")]
    assert [column.name for column in known] == ["place", "addresses"]


def test_earlier_builds_recorded_the_same_digest_of_an_aggregate(pond: Pond) -> None:
    layer = next(table for table in pond.pipeline.tables if table.kind == "aggregate")
    assert definition_of(layer).field_digests["kind"] == stored._AGGREGATE
