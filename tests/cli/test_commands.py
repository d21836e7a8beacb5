"""What each command says and how it ends, where nothing has to be started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.settings import KNOWN
from headrace.spec import list_pipelines
from headrace.spec.folders import BUILT_IN
from tests.application import start_headrace
from tests.shop import write_shop


def headrace(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    application = start_headrace(*arguments, environ=environ, folder=folder)
    return application.wait(seconds=60), application.said()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["land", "--help"], ["--version"], ["new", "mine"], ["check", "lineage"], ["check"]]
)
def test_light_commands_load_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['headrace', *{arguments!r}]\n"
        "from headrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = ('pyspark', 'py4j', 'pyarrow', 'pyiceberg', 'duckdb', 'polars', 'fastavro', 'confluent_kafka', 'sqlglot')\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    reads_sql = arguments == ["check"]
    assert done.stdout.splitlines()[-1] == ("loaded: ['sqlglot']" if reads_sql else "loaded: []")


def test_help_names_every_command(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "--help")
    assert code == 0
    for command in (
        *("demo", "new", "check", "up", "down", "status", "logs", "generate", "land", "run"),
        *("serve", "query", "lineage", "export", "commits", "verify", "forget", "doctor", "clean"),
    ):
        assert f"\n  {command} " in said


@pytest.mark.parametrize("command", ["land", "run", "check", "commits", "verify", "generate", "status", "demo", "lineage"])
def test_an_unknown_pipeline(tmp_path: Path, command: str) -> None:
    code, said = headrace(tmp_path, command, "linage")
    assert code == 2
    assert 'there is no pipeline "linage"' in said
    assert "lineage" in said.splitlines()[-1], "it says which one may have been meant"
    assert "Traceback" not in said


def test_nobody_is_forgotten_where_nobody_is_declared(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "forget", "lineage", "--email", "ann@example.com")
    assert code == 1
    assert "the pipeline does not say whose its rows are" in said
    assert "Add people: to pipeline.yml" in said
    code, said = headrace(tmp_path, "forget", "lineage")
    assert code == 2
    assert "--email ADDRESS, --id SOURCE:ID or --requested" in said
    code, said = headrace(tmp_path, "forget", "lineage", "--id", "7")
    assert code == 2
    assert "an id is SOURCE:ID" in said


def test_check(tmp_path: Path) -> None:
    assert headrace(tmp_path, "check", "lineage") == (0, "lineage: nothing is wrong\n")
    assert headrace(tmp_path, "new", "mine")[0] == 0
    names = [*(found.name for found in list_pipelines(BUILT_IN)), "mine"]
    assert headrace(tmp_path, "check")[1].splitlines() == [f"{name}: nothing is wrong" for name in names]
    path = tmp_path / "pipelines" / "mine" / "pipeline.yml"
    path.write_text(path.read_text().replace("format: avro", "formt: avro"))
    code, said = headrace(tmp_path, "check", "mine")
    assert code == 2
    assert "pipelines/mine/pipeline.yml:" in said
    assert "formt" in said
    assert headrace(tmp_path, "land", "mine", "--once")[0] == 2


def test_lineage(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code, said = headrace(tmp_path, "lineage", "shop", "by_country.total", "--json")
    assert code == 0
    assert json.loads(said)["expressions"] == ["SUM(c.amount)"]
    code, said = headrace(tmp_path, "lineage", "shop", "nothing")
    assert code == 2
    assert "Tables are: raw.charges, " in said


def test_lineage_loads_no_engine(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code = (
        "import sys\n"
        "sys.argv = ['headrace', 'lineage', 'shop']\n"
        "from headrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = ('pyspark', 'py4j', 'pyarrow', 'pyiceberg', 'duckdb', 'polars', 'fastavro', 'confluent_kafka')\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_export_dbt(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code, said = headrace(tmp_path, "export", "dbt", "shop")
    assert code == 0
    assert said.startswith("dbt/shop has 6 models.")
    assert "home: ../../.headrace" in (tmp_path / "dbt/shop/profiles.yml").read_text()
    code, said = headrace(tmp_path, "export", "dbt", "shop", "--dialect", "oracle")
    assert (code, said.splitlines()[-1]) == (2, "Dialects are: duckdb, spark.")
    code, said = headrace(tmp_path, "export", "dbt", "shop", "--into", "pipelines")
    assert code == 2
    assert "not empty" in said


def test_new(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "new", "mine")
    assert code == 0
    assert "Next: headrace check mine" in said
    assert (tmp_path / "pipelines" / "mine" / "pipeline.yml").exists()
    code, said = headrace(tmp_path, "new", "mine")
    assert code == 2
    assert "mine" in said


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM lineage.events", 'there is no table "lineage.events"'),
        ("SELECT * FROM", "query:1"),
        ("DROP TABLE lineage.events", "only one SELECT"),
        ("SELECT 1; SELECT 2", "only one SELECT"),
        ("COPY (SELECT 1) TO '/tmp/headrace-must-not-exist'", "only one SELECT"),
        ("SELECT * FROM '/etc/passwd'", "there is no table"),
        ("SELECT * FROM read_text('/etc/passwd')", "Permission Error"),
        ("SELECT nothing", "nothing"),
    ],
)
def test_a_query_that_can_not_be_answered(tmp_path: Path, sql: str, says: str) -> None:
    code, said = headrace(tmp_path, "query", sql)
    assert code == 1
    assert says in said
    assert "Traceback" not in said
    assert "root:" not in said


def test_a_query_without_tables(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "query", "SELECT 1 AS one, NULL AS nothing, 'é' AS text", "--json")
    assert (code, json.loads(said)) == (0, [{"one": 1, "nothing": None, "text": "é"}])
    assert headrace(tmp_path, "query", "SELECT 1 AS one, NULL AS nothing, 'a,b' AS text", "--csv") == (
        0,
        'one,nothing,text\n1,,"a,b"\n',
    )


@pytest.mark.services
@pytest.mark.parametrize("command", ["commits", "verify"])
def test_before_anything_was_landed(tmp_path: Path, command: str, broker: str) -> None:
    code, said = headrace(tmp_path, command, "lineage", KAFKA_BOOTSTRAP_SERVERS=broker)
    assert code == 1
    assert "nothing has been landed yet" in said
    assert "headrace land lineage --once" in said


def test_doctor(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[local]\nspark.master = "local[1]"\n')
    code, said = headrace(tmp_path, "doctor", "--json", HEADRACE_BATCH_MAX_RECORDS="77")
    assert code == 0
    found = json.loads(said)
    origins = {one["name"]: (one["value"], one["origin"]) for one in found["settings"]}
    assert set(origins) == {"profile", *(known.name for known in KNOWN)}
    assert origins["batch.max_records"] == ("77", "environment (HEADRACE_BATCH_MAX_RECORDS)")
    assert origins["spark.master"] == ("local[1]", "headrace.toml [local]")
    assert origins["home"] == (str(tmp_path / ".headrace"), "default")
    assert {one["subject"] for one in found["findings"]} >= {"Python", "Java", "disk", "Kafka", "catalog"}
    assert {one["state"] for one in found["findings"]} <= {"ok", "attention"}


def test_doctor_finds_a_catalog_that_does_not_answer_and_keeps_its_password(tmp_path: Path) -> None:
    environ = {"HEADRACE_CATALOG_URI": "postgresql+nothing://me:secret@nowhere/db"}
    for arguments in (["doctor"], ["doctor", "--json"]):
        code, said = headrace(tmp_path, *arguments, **environ)
        assert code == 1
        assert "catalog" in said
        assert "secret" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[local]\nnothing = 1\n", '"nothing" in [local] is not a setting'),
        ("[local\n", "not valid TOML"),
        ('[local]\nbatch.max_records = "many"\n', "must be a whole number"),
    ],
)
def test_a_settings_file_that_can_not_be(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "headrace.toml").write_text(text)
    code, said = headrace(tmp_path, "doctor")
    assert code == 2
    assert says in said


def test_clean(tmp_path: Path) -> None:
    assert "there is nothing to remove" in headrace(tmp_path, "clean")[1]
    home = tmp_path / ".headrace"
    (home / "warehouse").mkdir(parents=True)
    assert headrace(tmp_path, "clean")[0] == 1, "it asks, and nobody answers"
    assert home.exists()
    assert headrace(tmp_path, "clean", "--yes")[0] == 0
    assert not home.exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    code, said = headrace(tmp_path, "clean", "--yes", HEADRACE_HOME=str(tmp_path / "photos"))
    assert code == 2
    assert "does not look like Headrace's state" in said
    assert (tmp_path / "photos" / "one.jpg").exists()


def test_status_down_and_logs_where_nothing_runs(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "status", "lineage", "--json")
    assert code == 0
    found = json.loads(said)
    assert [(one["name"], one["state"]) for one in found["services"]] == [("kafka", "stopped"), ("postgres", "stopped")]
    assert [(one["label"], one["rows"], one["lag"]) for one in found["streams"]] == [("lineage.events", 0, None)]
    assert headrace(tmp_path, "down") == (0, "nothing was running\n")
    code, said = headrace(tmp_path, "logs", "kafka")
    assert code == 1
    assert "kafka has no log" in said
    assert headrace(tmp_path, "logs", "hbase")[0] == 1


def test_the_log_of_spark(tmp_path: Path) -> None:
    (tmp_path / ".headrace" / "logs").mkdir(parents=True)
    (tmp_path / ".headrace" / "logs" / "spark.log").write_text("one\ntwo\n")
    assert headrace(tmp_path, "logs", "spark", "--lines", "1") == (0, "two\n")
