"""Few new rows of a query that only selects columns are resolved without Spark, and equal Spark's rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.build.changes import read_frame
from headrace.build.entities import arrived
from headrace.build.inputs import state_of
from headrace.build.planned_inputs import PlannedInputs
from headrace.build.work import DriverChanges, driver_changes
from headrace.iceberg.ledgers.build import InputState
from headrace.spec.model.pipeline import TableName
from tests.build.entities.people import TABLES, People, Record
from tests.build.layer_lake import assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NAME = "b/direct_index.sql"
EXPECTS = TABLES[NAME].replace("except_column_list", "expect: {it has a name: name IS NOT NULL}\nexcept_column_list")
EVENTS = TableName("pond", "events")


@pytest.fixture
def spark_computes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose new rows Spark computed."""
    tables: list[str] = []

    def noted(inputs: PlannedInputs) -> DriverChanges:
        tables.append(inputs.table.table.name)
        return driver_changes(inputs)

    monkeypatch.setattr(arrived, "driver_changes", noted)
    return tables


def test_new_rows_are_picked_without_spark(spark: SparkSession, tmp_path: Path, spark_computes: list[str]) -> None:
    people = People(tmp_path, spark, {NAME: EXPECTS})
    people.land([Record("shop", "1", email="a@b.org", name="Ann"), Record("pay", "1", email="c@d.org", name="Cleo")])
    people.build()
    people.land([Record("crm", "1", email="A@b.org", name="Ann"), Record("crm", "2", op="d", name="Dan")])
    people.build()
    assert spark_computes == []
    index = people.rows("direct_index")
    assert len(index) == 3
    people.land([Record("crm", "3", email="c@d.org")])
    built = people.build()[-1].built
    assert built is not None
    assert spark_computes == ["direct_index"], "a row that fails is shown in Spark's words"
    assert [(expectation.checked, expectation.failed) for expectation in built.entry.expectations] == [(1, 1)]
    rows = people.all_rows()
    people.build(full_refresh=True)
    assert_same(people.all_rows(), rows)


def test_rows_that_changed_are_computed_by_spark(spark: SparkSession, tmp_path: Path, spark_computes: list[str]) -> None:
    people = People(tmp_path, spark)
    people.send(Record("shop", "1", email="a@b.org"), Record("pay", "1", email="c@d.org"))
    people.send(Record("crm", "1", email="c@d.org"))
    assert spark_computes == [], "a built table that only grew is like a landed one"
    people.send(Record("crm", "1", email="a@b.org", n=2))
    assert spark_computes == ["entity_index"]


def test_new_rows_are_those_between_two_points(spark: SparkSession, tmp_path: Path) -> None:
    people = People(tmp_path, spark, {NAME: TABLES[NAME]})
    states = [InputState()]
    for number in range(3):
        people.land([Record("shop", str(number))])
        states.append(state_of(people.catalog.load_table(str(EVENTS)), raw=True))
    columns = [column for column in people.lake.columns[EVENTS] if column.name in ("source_id", "n")]

    def ids(since: InputState | None, until: InputState) -> list[str] | None:
        rows = read_frame(people.catalog, people.pipeline, EVENTS, since=since, until=until, columns=columns)
        return None if rows is None else sorted(rows["source_id"])

    assert ids(states[0], states[2]) == ["0", "1"]
    assert ids(states[1], states[2]) == ["1"]
    assert ids(states[1], states[3]) == ["1", "2"]
    assert ids(states[3], states[3]) == []
    assert ids(None, states[2]) == ["0", "1"]
    assert ids(None, InputState()) == []
