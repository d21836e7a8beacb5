"""Compare the rows of a dbt project's models with the tables that Headrace lands and builds from the same topic."""

from __future__ import annotations

import json

import duckdb
import pytest

from headrace.export.dbt_project import export_project
from headrace.spec import Query
from tests.export import events
from tests.export.conftest import Dbt
from tests.support.lake import Lake
from tests.support.shop import write_shop
from tests.support.topics import make_topic, produce


@pytest.mark.services
@pytest.mark.spark
@pytest.mark.dbt
@pytest.mark.long
def test_dbt_and_headrace_build_the_same_rows(lake: Lake, dbt: Dbt) -> None:
    folder = write_shop(lake.folder)
    settings = folder / "pipeline.yml"
    settings.write_text(settings.read_text().replace("shop_charges", lake.topic))
    make_topic(lake.servers, lake.topic)
    produce(lake.servers, lake.topic, [_message(row) for row in events.make_charges(400, seed=4)], partitions=1)
    lake.run("land", "shop", "--once")
    assert lake.start("build", "shop").wait(seconds=300) == 0
    project, pipeline = lake.folder / "dbt", lake.pipeline("shop")
    export_project(lake.settings(), pipeline, folder=project, dialect="duckdb")
    dbt(project, "build")
    with duckdb.connect(str(project / "headrace_dbt.duckdb"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table in (candidate for candidate in pipeline.tables if isinstance(candidate.source, Query)):
            rows = connection.execute(f"SELECT * FROM {table.table}").to_arrow_table().to_pylist()
            built = [
                {name: row[name] for name in row if name not in ("_build_id", "_state")} for row in lake.rows(str(table.table))
            ]
            assert built, table.table
            assert events.in_order(rows) == events.in_order(built), table.table


def _message(row: events.Row) -> bytes:
    event = {name: value for name, value in row.items() if name != "kafka_offset"}
    event["amount"] = None if row["amount"] is None else float(row["amount"])
    event["updated_at"] = row["updated_at"] and row["updated_at"].isoformat()
    return json.dumps(event).encode()
