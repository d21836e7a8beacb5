"""`headrace demo` end to end, and `headrace verify` on a manipulated lake."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.lake import Lake

pytestmark = [pytest.mark.services, pytest.mark.spark]
EVENTS = 200


@pytest.fixture(scope="module")
def shown(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, str]]:
    """A lake that `headrace demo` has created, and its output."""
    lake = Lake(tmp_path_factory.mktemp("demo"), broker, "test-demo")
    yield lake, lake.run("demo", "lineage", "--events", str(EVENTS))
    for application in lake.applications:
        application.end()


def test_demo_shows_its_results(shown: tuple[Lake, str]) -> None:
    _, output = shown
    assert f"{EVENTS} events are in topic test-demo" in output
    assert f"lineage.events  checkpoint 1  {EVENTS} rows  0 quarantined" in output
    assert "The lake compared with its topics, offset by offset" in output
    assert "Next: headrace commits lineage" in output
    assert not [line for line in output.splitlines() if "WARN" in line or "ERROR" in line], "Spark's noise goes to a file"
    assert (shown[0].home / "logs" / "spark.log").exists()


def test_demo_says_that_it_ends_where_its_output_is_no_terminal(shown: tuple[Lake, str]) -> None:
    assert shown[1].splitlines()[-1] == (
        "The demo ends here, because its output is not a terminal. To go on: headrace run lineage"
    )


def test_query_prints_json_csv_and_a_table(shown: tuple[Lake, str]) -> None:
    lake, _ = shown
    sql = "SELECT count(*) AS n, count(DISTINCT kafka_partition) AS partitions, max(checkpoint_id) AS c FROM lineage.events"
    assert json.loads(lake.command("query", sql, "--json")) == [{"n": EVENTS, "partitions": 10, "c": 1}]
    text = lake.command("query", "SELECT uuid, event_time FROM lineage.events ORDER BY uuid LIMIT 3", "--csv")
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["uuid"] for row in rows] == sorted(row["uuid"] for row in lake.rows("lineage.events", "uuid"))[:3]
    assert "3 rows" in lake.command("query", "SELECT uuid FROM lineage.events LIMIT 3")


def test_commits_lists_the_files_of_the_log(shown: tuple[Lake, str]) -> None:
    lake, _ = shown
    files = json.loads(lake.command("commits", "lineage", "--checkpoint", "1", "--json"))
    assert files
    assert {(file["state"], file["checkpoint_id"], file["table"]) for file in files} == {("committed", 1, "lineage.events")}
    assert sum(file["rows"] for file in files) == EVENTS
    offsets = {partition: span for file in files for partition, span in file["offsets"].items()}
    assert offsets == {str(partition): [0, EVENTS // 10 - 1] for partition in range(10)}
    assert json.loads(lake.command("commits", "lineage", "--checkpoint", "5", "--json")) == []
    assert "not found in the commit log" in lake.command("commits", "lineage", "--checkpoint", "5")
    noun = "file" if len(files) == 1 else "files"
    assert f"{len(files)} {noun}: {len(files)} committed, 0 orphan or gone" in lake.command("commits", "lineage")


def verify(lake: Lake) -> tuple[int, dict[str, int], str]:
    code, text = lake.try_command("verify", "lineage", "--json")
    (stream,) = json.loads(text)
    plain_code, plain = lake.try_command("verify", "lineage")
    assert plain_code == code
    return code, stream, plain


def test_verify_detects_missing_and_duplicated_rows(shown: tuple[Lake, str]) -> None:
    """Manipulate one lake step by step: no change, a duplicated row, missing rows, a missing log."""
    lake, _ = shown
    code, verified, _ = verify(lake)
    assert (code, verified["in_topic"], verified["landed"], verified["missing"], verified["doubled"]) == (
        0,
        EVENTS,
        EVENTS,
        0,
        0,
    )
    table = lake.table("lineage.events")
    (*_, victim) = table.scan().to_arrow().to_pylist()
    table.append(pa.Table.from_pylist([victim], schema=table.scan().to_arrow().schema))
    code, verified, output = verify(lake)
    assert (code, verified["doubled"], verified["missing"], verified["unlogged"]) == (1, 1, 0, 1)
    where = f"test-demo[{victim['kafka_partition']}] offset {victim['kafka_offset']}"
    assert f"doubled: {where}" in output
    assert "not in the commit log: " in output
    lake.table("lineage.events").delete(f"uuid = '{victim['uuid']}'")
    code, verified, output = verify(lake)
    assert (code, verified["doubled"], verified["missing"]) == (1, 0, 1)
    assert f"missing: {where}" in output
    count = f"SELECT count(*) AS n FROM lineage.events WHERE uuid = '{victim['uuid']}'"
    assert json.loads(lake.command("query", count, "--json")) == [{"n": 0}], "a query respects deletes"


def test_status_shows_the_landed_stream(shown: tuple[Lake, str], tmp_path: Path) -> None:
    lake, _ = shown
    (stream,) = json.loads(lake.command("status", "lineage", "--json"))["streams"]
    assert (stream["label"], stream["topic"], stream["table"]) == ("lineage.events", "test-demo", "lineage.events")
    assert (stream["checkpoint_id"], stream["lag"], stream["quarantined"], stream["gaps"]) == (1, 0, 0, [])
    assert "lineage.events" in lake.command("status")


# a pipeline with layers


@pytest.fixture(scope="module")
def shown_payments(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, str]]:
    """A lake that `headrace demo` has created from a copy of the payments pipeline, and its output."""
    lake = Lake(tmp_path_factory.mktemp("demo-payments"), broker, "unused")
    lake.command("new", "mine", "--from", "payments")
    lake.command("check", "mine")
    demo = lake.start("demo", "mine", "--events", "120", "--exit")
    assert demo.wait(seconds=400) == 0, demo.said()
    yield lake, demo.said()
    for application in lake.applications:
        application.end()


def test_demo_builds_all_tables_and_runs_the_pipelines_queries(shown_payments: tuple[Lake, str]) -> None:
    lake, output = shown_payments
    pipeline = lake.pipeline("mine")
    assert "120 events are in topic mine-payment_charges" in output
    assert f"Building {len(pipeline.tables)} tables" in output
    for table in pipeline.tables:
        assert f"{table.table}  build 1  " in output
    assert len(pipeline.queries) == 3
    for query in pipeline.queries:
        assert query.about in output
        assert f'headrace query "{query.sql}"' in output
    assert "\nExpectations\n" in output
    assert "there is a postal code" in output
    assert "other expectations hold for every row" in output
    assert "Next: headrace lineage mine" in output
    assert "not a terminal" not in output, "--exit was passed"
    assert not [line for line in output.splitlines() if "WARN" in line or "ERROR" in line or "failed:" in line]


def test_status_shows_the_built_tables(shown_payments: tuple[Lake, str]) -> None:
    lake, _ = shown_payments
    tables = {table["table"]: table for table in json.loads(lake.command("status", "mine", "--json"))["tables"]}
    assert set(tables) == {str(table.table) for table in lake.pipeline("mine").tables}
    assert {(table["build_id"], table["behind_seconds"]) for table in tables.values()} == {(1, 0.0)}
    charges = tables["mine_payments_db.payment_charges_cleaned"]
    assert (charges["kind"], charges["rows"]) == ("upsert", len(lake.rows("mine_payments_db.payment_charges_cleaned")))
    assert "there is a postal code" in [expectation["sentence"] for expectation in charges["failing"]]
    output = lake.command("status", "mine")
    assert "mine_payments_db.payment_charges_cleaned" in output
    assert f"{len(charges['failing'])} of {charges['expectations']} expectations" in output


def test_queries_of_the_readme_match_the_pipeline(shown_payments: tuple[Lake, str]) -> None:
    lake, _ = shown_payments
    readme = (lake.pipeline("mine").folder / "README.md").read_text(encoding="utf-8")
    asked = [
        line.removeprefix('headrace query "').removesuffix('"') for line in readme.splitlines() if "headrace query" in line
    ]
    assert asked[:3] == [query.sql for query in lake.pipeline("mine").queries]
    for sql in asked[3:]:
        lake.command("query", sql)
