"""Commands that start nothing: what they print, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("pyspark", "pyarrow", "pyiceberg", "polars", "duckdb", "confluent_kafka", "sqlglot")


def headrace(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "KAFKA_"))}
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments],
        cwd=folder,
        env={**plain, "HEADRACE_HOME": str(folder / ".headrace"), **environ},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["check"], ["new", "mine"]])
def test_it_loads_neither_spark_nor_arrow(arguments: list[str], tmp_path: Path) -> None:
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "headrace.cli", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "headrace.spec" in loaded
    assert not [name for name in HEAVY if f"| {name}\n" in loaded or f" {name}\n" in loaded]


def test_help_lists_the_commands(tmp_path: Path) -> None:
    said = headrace("--help", folder=tmp_path).stdout
    for command in ("demo", "new", "check", "up", "down", "status", "logs", "generate", "land", "run", "query", "commits"):
        assert f"\n  {command} " in said


def test_new_and_check(tmp_path: Path) -> None:
    assert headrace("new", "orders", folder=tmp_path).returncode == 0
    checked = headrace("check", "orders", folder=tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "orders: nothing is wrong\n")
    again = headrace("new", "orders", folder=tmp_path)
    assert again.returncode == 2
    assert "the folder is already there" in again.stderr


def test_check_names_file_line_and_fix(tmp_path: Path) -> None:
    headrace("new", "orders", folder=tmp_path)
    path = tmp_path / "pipelines" / "orders" / "pipeline.yml"
    path.write_text(path.read_text().replace("partitions:", "partitoins:"))
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "partitoins" in text)
    checked = headrace("check", "orders", folder=tmp_path)
    assert checked.returncode == 2
    assert f"pipelines/orders/pipeline.yml:{line}: " in checked.stderr
    assert "partitions" in checked.stderr


def test_an_unknown_pipeline(tmp_path: Path) -> None:
    said = headrace("land", "nope", folder=tmp_path)
    assert said.returncode == 2
    assert (
        said.stderr == 'there is no pipeline "nope"\nPipelines are: lineage, payments. Or start your own: headrace new nope\n'
    )


def test_a_query_before_anything_is_landed(tmp_path: Path) -> None:
    said = headrace("query", "SELECT * FROM lineage.events", folder=tmp_path)
    assert said.returncode == 1
    assert 'there is no table "lineage.events"' in said.stderr
    assert "land something first" in said.stderr


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELEC 1", "query:1:7: Invalid expression"),
        ("DROP TABLE lineage.events", "only one SELECT can be asked at a time"),
        ("SELECT 1; SELECT 2", "only one SELECT can be asked at a time"),
        ("COPY (SELECT 1) TO 'x.csv'", "only one SELECT can be asked at a time"),
        ("SELECT * FROM read_csv('/etc/hostname')", "disabled by configuration"),
        ("SELECT * FROM '/etc/hostname'", "there is no table"),
    ],
)
def test_a_query_can_read_the_lake_and_nothing_else(sql: str, says: str, tmp_path: Path) -> None:
    said = headrace("query", sql, folder=tmp_path)
    assert said.returncode == 1
    assert says in said.stderr


def test_a_query_as_json_and_csv(tmp_path: Path) -> None:
    sql = "SELECT 1 AS n, 12.50::DECIMAL(10,2) AS amount, TIMESTAMPTZ '2026-01-01 00:00:00+01' AS at, 'a,b' AS text, NULL AS x"
    assert json.loads(headrace("query", sql, "--json", folder=tmp_path).stdout) == [
        {"n": 1, "amount": "12.50", "at": "2025-12-31 23:00:00.000000Z", "text": "a,b", "x": None}
    ]
    csv = headrace("query", sql, "--csv", folder=tmp_path).stdout
    assert csv == 'n,amount,at,text,x\n1,12.50,2025-12-31 23:00:00.000000Z,"a,b",\n'


def test_commits_before_anything_is_landed(tmp_path: Path) -> None:
    said = headrace("commits", "lineage", folder=tmp_path)
    assert said.returncode == 1
    assert said.stderr == "pipeline lineage: nothing has been landed yet\nRun: headrace land lineage --once\n"


def test_a_kafka_that_does_not_answer(tmp_path: Path) -> None:
    said = headrace("land", "lineage", "--once", folder=tmp_path, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert said.returncode == 1
    assert "Kafka does not answer on 127.0.0.1:1" in said.stderr
    assert "KAFKA_BOOTSTRAP_SERVERS" in said.stderr


def test_a_generator_that_is_not_there(tmp_path: Path) -> None:
    said = headrace("generate", "lineage.nope", folder=tmp_path)
    assert said.returncode == 2
    assert "Streams with a generator are: events." in said.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["payments.charges", "--problem", "lat=0.1"],
            'no generator makes the problem "lat"\nProblems are: charges: duplicate, ',
        ),
        (["lineage", "--problem", "late=0.1"], "These generators make none: leave --problem out."),
        (["payments", "--problem", "late"], '"late" is not a problem and its rate\nWrite it as --problem late=0.05'),
        (["payments", "--problem", "late=2"], '"late=2" is not a problem and its rate'),
    ],
)
def test_a_problem_that_is_not_there(arguments: list[str], says: str, tmp_path: Path) -> None:
    said = headrace("generate", *arguments, folder=tmp_path)
    assert said.returncode == 2
    assert says in said.stderr


def test_generate_needs_a_pipeline(tmp_path: Path) -> None:
    said = headrace("generate", folder=tmp_path)
    assert said.returncode == 2
    assert "name a pipeline" in said.stderr
    assert headrace("generate", "--stop", folder=tmp_path).stdout == "no generator was running in the background\n"


def test_doctor_says_where_each_setting_came_from(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[local]\nkafka.port = 9393\nspark.master = "local[1]"\n')
    said = headrace("doctor", "--json", folder=tmp_path, HEADRACE_SPARK_MASTER="local[2]")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert {part["state"] for part in found["findings"]} <= {"ok", "attention"}
    origins = {setting["name"]: (setting["value"], setting["origin"]) for setting in found["settings"]}
    assert origins["kafka.port"] == ("9393", "headrace.toml [local]")
    assert origins["spark.master"] == ("local[2]", "environment (HEADRACE_SPARK_MASTER)")
    assert origins["batch.max_records"] == ("500000", "default")


def test_doctor_prints_no_password(tmp_path: Path) -> None:
    secret = "postgresql+psycopg2://anna:hunter2@127.0.0.1:1/lake"
    said = headrace("doctor", folder=tmp_path, HEADRACE_CATALOG_URI=secret)
    assert said.returncode == 1
    assert "hunter2" not in said.stdout + said.stderr
    assert "anna:***@127.0.0.1:1/lake" in said.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[local\n", "not valid TOML"),
        ("[local]\nkafka.prot = 1\n", '"kafka.prot" in [local] is not a setting'),
        ("[local]\nkafka.port = 0\n", 'kafka.port must be a whole number above 0, not "0"'),
    ],
)
def test_bad_settings(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(text)
    said = headrace("doctor", folder=tmp_path)
    assert said.returncode == 2
    assert says in said.stderr


def test_an_unknown_profile(tmp_path: Path) -> None:
    said = headrace("--profile", "cloud", "doctor", folder=tmp_path)
    assert said.returncode == 2
    assert 'profile "cloud" needs a headrace.toml' in said.stderr


def test_clean_removes_only_what_is_ours(tmp_path: Path) -> None:
    home = tmp_path / ".headrace"
    (home / "photos").mkdir(parents=True)
    refused = headrace("clean", "--yes", folder=tmp_path)
    assert refused.returncode == 2
    assert (home / "photos").exists()
    (home / "warehouse").mkdir()
    assert headrace("clean", "--yes", folder=tmp_path).returncode == 0
    assert not home.exists()


def test_clean_asks_first(tmp_path: Path) -> None:
    (tmp_path / ".headrace" / "warehouse").mkdir(parents=True)
    assert headrace("clean", folder=tmp_path).returncode == 1
    assert (tmp_path / ".headrace" / "warehouse").exists()
