"""The output and exit code of each command, without servers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.iceberg.snapshots.moments import Instant, parse_moment, show_time
from headrace.settings import SETTING_SPECS
from headrace.spec import list_pipelines
from headrace.spec.loading.folders import BUILT_IN
from tests.cli.conftest import Here
from tests.serving.shop_lake import ShopLake
from tests.support.command import run_command
from tests.support.folders import write_files
from tests.support.shop import write_shop


def headrace(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    return run_command(*arguments, environ=environ, folder=folder)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["land", "--help"], ["--version"], ["new", "mine"], ["check", "lineage"], ["check"]]
)
def test_light_commands_load_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['headrace', *{arguments!r}]\n"
        "from headrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = ('pyspark', 'py4j', 'pyarrow', 'pyiceberg', 'duckdb', 'polars', 'fastavro', 'confluent_kafka', 'sqlglot', "
        "'httpx', 'tenacity')\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    reads_sql = arguments == ["check"]
    assert done.stdout.splitlines()[-1] == ("loaded: ['sqlglot']" if reads_sql else "loaded: []")


def test_help_names_every_command(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, output = here("--help")
    assert code == 0
    assert "..." not in output.split("Commands:")[1], "a sentence is whole, also on a narrow terminal"
    assert "export dbt" in output
    assert "Exit codes: 0 done" in output
    for command in (
        *(
            "demo",
            "new",
            "check",
            "up",
            "down",
            "status",
            "logs",
            "env",
            "connectors",
            "generate",
            "seed",
            "psql",
            "land",
            "run",
        ),
        *("topics", "notebook", "stage-config", "submit"),
        *("serve", "query", "lineage", "export", "commits", "verify", "maintain", "erase", "doctor", "clean"),
    ):
        assert f"\n  {command} " in output


@pytest.mark.parametrize(
    "command", ["land", "run", "submit", "check", "commits", "verify", "generate", "status", "demo", "lineage"]
)
def test_unknown_pipeline_is_an_error(tmp_path: Path, command: str) -> None:
    code, output = headrace(tmp_path, command, "linage")
    assert code == 2
    assert 'not found: pipeline "linage"' in output
    assert "lineage" in output.splitlines()[-1], "it says which one may have been meant"
    assert "Traceback" not in output


def test_erase_requires_people_in_the_pipeline(tmp_path: Path) -> None:
    code, output = headrace(tmp_path, "erase", "lineage", "--email", "ann@example.com")
    assert code == 1
    assert "the pipeline does not declare people" in output
    assert "Add people: to pipeline.yml" in output
    code, output = headrace(tmp_path, "erase", "lineage")
    assert code == 2
    assert "--email ADDRESS, --id SOURCE:ID or --requested" in output
    code, output = headrace(tmp_path, "erase", "lineage", "--id", "7")
    assert code == 2
    assert "an id must be SOURCE:ID" in output


def test_check_reports_mistakes(tmp_path: Path) -> None:
    assert headrace(tmp_path, "check", "lineage") == (0, "lineage: OK\n")
    assert headrace(tmp_path, "new", "mine")[0] == 0
    names = [*(pipeline.name for pipeline in list_pipelines(BUILT_IN)), "mine"]
    assert headrace(tmp_path, "check")[1].splitlines() == [f"{name}: OK" for name in names]
    path = tmp_path / "pipelines" / "mine" / "pipeline.yml"
    path.write_text(path.read_text().replace("format: avro", "formt: avro"))
    code, output = headrace(tmp_path, "check", "mine")
    assert code == 2
    assert "pipelines/mine/pipeline.yml:" in output
    assert "formt" in output
    assert headrace(tmp_path, "land", "mine", "--once")[0] == 2


def test_lineage_prints_expressions(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code, output = headrace(tmp_path, "lineage", "shop", "by_country.total", "--json")
    assert code == 0
    assert json.loads(output)["expressions"] == ["SUM(c.amount)"]
    code, output = headrace(tmp_path, "lineage", "shop", "nothing")
    assert code == 2
    assert "Tables are: raw.charges, " in output


def test_lineage_is_not_truncated_when_piped(tmp_path: Path) -> None:
    column = "payments_db.payment_transactions.signed_amount"
    expressions = json.loads(headrace(tmp_path, "lineage", "payments", column, "--json")[1])["expressions"]
    code, output = headrace(tmp_path, "lineage", "payments", column)
    assert code == 0
    assert len("; ".join(expressions)) > 240
    assert output.splitlines()[0] == f"{column}  {'; '.join(expressions)}"


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


def test_export_dbt_writes_a_project(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code, output = headrace(tmp_path, "export", "dbt", "shop")
    assert code == 0
    assert output.startswith("dbt/shop has 6 models.")
    assert "home: ../../.headrace" in (tmp_path / "dbt/shop/profiles.yml").read_text()
    code, output = headrace(tmp_path, "export", "dbt", "shop", "--dialect", "oracle")
    assert (code, output.splitlines()[-1]) == (2, "Dialects are: duckdb, spark.")
    code, output = headrace(tmp_path, "export", "dbt", "shop", "--into", "pipelines")
    assert code == 2
    assert "not empty" in output


def test_export_airflow_writes_a_dag(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code, output = headrace(tmp_path, "export", "airflow", "shop", "--schedule", "@hourly")
    assert (code, output.split(".")[0]) == (0, "dags/shop")
    compile((tmp_path / "dags/shop.py").read_text(encoding="utf-8"), "shop.py", "exec")
    code, output = headrace(tmp_path, "export", "airflow", "shop", "--schedule", "now and then")
    assert code == 2
    assert "--schedule: " in output


def test_build_alone_requires_a_table(tmp_path: Path) -> None:
    code, output = headrace(tmp_path, "build", "payments", "--no-deps")
    assert code == 2
    assert "--no-deps requires --table TABLE" in output


def test_new_copies_a_pipeline_once(tmp_path: Path) -> None:
    code, output = headrace(tmp_path, "new", "mine")
    assert code == 0
    assert "then run: headrace check mine" in output
    assert (tmp_path / "pipelines" / "mine" / "pipeline.yml").exists()
    code, output = headrace(tmp_path, "new", "mine")
    assert code == 2
    assert "mine" in output


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT * FROM lineage.events",
            'query: table not found: "lineage.events"\n'
            "The lake has no tables yet. A pipeline creates them when it lands, such as: headrace demo lineage",
        ),
        ("SELECT * FROM", "query:1:14: the query ends too early\nWrite the rest of it."),
        ("SELECT 1 +", "query:1:11: the query ends too early\nWrite the rest of it."),
        ("SELEC * FORM x", 'query:1:1: syntax error at or near "SELEC"\nBegin with SELECT, '),
        ("SELEC 1", 'query:1:1: syntax error at or near "SELEC"\nBegin with SELECT, '),
        ("SELECT (1 2)", 'query:1:11: syntax error at or near "2"\nFix the query at this position.'),
        ("SELECT\n  'a", "query:2:3: unterminated quoted string"),
        ("SELECT 1\nFROM default.x, Default.y WHRE z", 'query:2:32: syntax error at or near "z"'),
        ("", "query: the query is empty\nWrite one SELECT, such as: SELECT "),
        ("/* nothing */", "query: the query is empty\n"),
        ("DROP TABLE lineage.events", "only SELECT queries are allowed, and this is DROP\nWrite one"),
        ("EXPLAIN SELECT 1", "only SELECT queries are allowed, and this is EXPLAIN"),
        (
            "SHOW TABLES",
            "only SELECT queries are allowed, and this is SHOW\nThe lake has no tables yet",
        ),
        ("SELECT 1; SELECT 2", "query: a query must be one SELECT, and this has 2 statements\nRun them one after the other."),
        ("COPY (SELECT 1) TO '/tmp/headrace-must-not-exist'", "only SELECT queries are allowed, and this is COPY"),
        ("SELECT * FROM '/etc/passwd'", "table not found"),
        ("SELECT * FROM read_text('/etc/passwd')", "query:1:15: a query can read only tables of the lake"),
        ("SELECT nope", 'query:1:8: referenced column "nope" was not found because the FROM clause is missing\nWrite FROM '),
        ("SELECT fooo(1)", 'fooo does not exist\nDid you mean "'),
        ("SELECT one FROM (SELECT 1 AS on_e)", 'column "one" not found in FROM clause\nDid you mean "on_e"?'),
        ("SELECT sum('a'::VARCHAR)", "'sum(VARCHAR)'\nYou might need to add explicit type casts."),
    ],
)
def test_query_explains_what_is_wrong(here: Here, sql: str, says: str) -> None:
    code, output = here("query", sql)
    assert code == 2, "an argument is wrong"
    assert says in output
    assert len(output.splitlines()) == 2, "what and where, then what to do"
    for leaked in ("Traceback", "root:", "sqlglot", " Error: ", "LINE "):
        assert leaked not in output


def test_status_shows_how_far_back_tables_can_be_read(here: Here, tmp_path: Path) -> None:
    shop = ShopLake(tmp_path)
    shop.watch.close()
    shop.land(["a"])
    shop.land(["b"])
    (stream,) = json.loads(here("status", "shop", "--json")[1])["streams"]
    first = shop.catalog.load_table("raw.charges").metadata.snapshots[0]
    assert parse_moment(stream["readable_since"]) == Instant(first.timestamp_ms)
    assert stream["snapshots"] == 2
    assert "readable since" in here("status", "shop", "--verbose")[1]


def test_query_that_fails_on_a_value_exits_with_1(here: Here) -> None:
    code, output = here("query", "SELECT CAST(text AS INT) FROM (VALUES ('1'), ('a')) AS t(text)")
    assert code == 1
    assert "could not convert string 'a' to INT32" in output


def test_query_suggests_similar_names(here: Here, tmp_path: Path) -> None:
    shop = ShopLake(tmp_path)
    shop.watch.close()
    shop.land(["a"])
    for asked in ("charges", "raw.chrges"):
        assert here("query", f"SELECT * FROM {asked}") == (
            2,
            f'query: table not found: "{asked}"\nDid you mean "raw.charges"?\n',
        )
    _, output = here("query", "SELECT coutry FROM raw.charges")
    assert 'query:1:8: referenced column "coutry" not found in FROM clause\nSimilar names are: country, ' in output


def test_query_reads_tables_as_of_a_moment(here: Here, tmp_path: Path) -> None:
    shop = ShopLake(tmp_path)
    shop.watch.close()
    first = shop.land_in_turn(["a"], ["b"])
    sql = "SELECT count(*) AS n FROM raw.charges"
    for when, count in ((show_time(first.timestamp_ms), 1), (str(first.snapshot_id), 1), ("2999-01-01", 2)):
        for engine in ("duckdb", "polars"):
            code, output = here("query", sql, "--json", "--engine", engine, "--at", when)
            assert (code, json.loads(output)) == (0, [{"n": count}])
    since = show_time(first.timestamp_ms)
    assert here("query", sql, "--at", "1999-12-31") == (
        1,
        f"--at: raw.charges did not exist at 1999-12-31T00:00:00.000Z: its first snapshot is of {since}\n"
        f"Read it as of {since} or later.\n",
    )
    assert here("query", sql, "--at", "noon")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "SELECT 1", "--json", "--csv"], "--json and --csv are mutually exclusive"),
        (["lineage", "lineage", "--json", "--mermaid"], "--json and --mermaid are mutually exclusive"),
    ],
)
def test_output_formats_are_mutually_exclusive(here: Here, arguments: list[str], says: str) -> None:
    assert here(*arguments) == (2, f"{says}\nPass one of them.\n")


def test_query_without_tables(tmp_path: Path) -> None:
    code, output = headrace(tmp_path, "query", "SELECT 1 AS one, NULL AS nothing, 'é' AS text", "--json")
    assert (code, json.loads(output)) == (0, [{"one": 1, "nothing": None, "text": "é"}])
    assert headrace(tmp_path, "query", "SELECT 1 AS one, NULL AS nothing, 'a,b' AS text", "--csv") == (
        0,
        'one,nothing,text\n1,,"a,b"\n',
    )


@pytest.mark.parametrize("command", ["commits", "verify"])
def test_commands_before_the_first_landing(here: Here, tmp_path: Path, command: str) -> None:
    assert here(command, "lineage") == (
        1,
        "pipeline lineage: nothing has been landed yet\n"
        "Run the demo: headrace demo lineage   or: "
        "headrace generate lineage --count 1000, then headrace land lineage --once\n",
    )
    assert not (tmp_path / ".headrace").exists(), "no broker is started to say so"
    write_shop(tmp_path)
    assert here(command, "shop")[1].splitlines()[1] == "Send events to shop_charges, then run: headrace land shop --once"


def test_pipeline_without_layer_tables(here: Here) -> None:
    assert here("plan", "lineage") == (0, "lineage has no layer tables to build\n")
    assert here("build", "lineage") == (0, "lineage has no layer tables to build\n")
    assert here("quality", "lineage") == (0, "lineage has no expectations: it has no layer tables\n")
    for command in ("plan", "quality"):
        assert here(command, "lineage", "--json") == (0, "[]\n")


def test_plan_explains_all_tables_or_one(here: Here) -> None:
    code, output = here("plan", "weather", "--explain")
    assert code == 0
    assert "rebuilds all rows: it was never built" in output
    plain, explained = (json.loads(here("plan", "payments", "--json", *more)[1]) for more in ((), ("--explain",)))
    assert [{name: value for name, value in plan.items() if name != "explained"} for plan in explained] == plain
    assert all(plan["explained"]["strategy"] for plan in explained)
    assert all(plan["explained"]["access_paths"] for plan in explained if plan["reads"])
    name = plain[-1]["table"]
    plans = json.loads(here("plan", "payments", "--table", name, "--explain", "--json")[1])
    assert [plan["table"] for plan in plans if "explained" in plan] == [name]


def test_layer_tables_without_expectations(here: Here, tmp_path: Path) -> None:
    assert headrace(tmp_path, "new", "mine", "--from", "weather")[0] == 0
    path = tmp_path / "pipelines/mine/windows/weather_by_minute.sql"
    path.write_text(re.sub(r"^expect:\n(  .*\n)+", "", path.read_text(), flags=re.MULTILINE))
    assert here("quality", "mine") == (0, "mine has no expectations: none of its tables declares expect:\n")


def test_doctor_checks_this_machine(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[local]\nspark.master = "local[1]"\n')
    code, output = headrace(tmp_path, "doctor", "--json", HEADRACE_BATCH_MAX_RECORDS="77")
    assert code == 0
    report = json.loads(output)
    origins = {setting["name"]: (setting["value"], setting["origin"]) for setting in report["settings"]}
    assert set(origins) == {"profile", *(spec.name for spec in SETTING_SPECS)}
    assert origins["batch.max_records"] == ("77", "environment (HEADRACE_BATCH_MAX_RECORDS)")
    assert origins["spark.master"] == ("local[1]", "headrace.toml [local]")
    assert origins["home"] == (str(tmp_path / ".headrace"), "default")
    assert {finding["subject"] for finding in report["findings"]} >= {"Python", "Java", "disk", "Kafka", "catalog"}
    assert {finding["state"] for finding in report["findings"]} <= {"ok", "attention"}


@pytest.mark.parametrize("address", ["postgresql+nothing://me:secret@nowhere/db", "postgresql+no://nowhere/db?password=secret"])
def test_doctor_finds_a_catalog_that_does_not_answer_and_keeps_its_password(tmp_path: Path, address: str) -> None:
    environ = {"HEADRACE_CATALOG_URI": address}
    for arguments in (["doctor"], ["doctor", "--json"]):
        code, output = headrace(tmp_path, *arguments, **environ)
        assert code == 1
        assert "catalog" in output
        assert "secret" not in output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[local]\nnothing = 1\n", 'unknown setting "nothing" in [local]'),
        ("[local\n", "not valid TOML"),
        ('[local]\nbatch.max_records = "many"\n', "must be a whole number"),
    ],
)
def test_invalid_settings_file_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "headrace.toml").write_text(text)
    code, output = headrace(tmp_path, "doctor")
    assert code == 2
    assert says in output


def test_clean_removes_state(tmp_path: Path) -> None:
    assert "nothing to remove" in headrace(tmp_path, "clean")[1]
    home = tmp_path / ".headrace"
    (home / "warehouse").mkdir(parents=True)
    assert headrace(tmp_path, "clean")[0] == 1, "the confirmation gets no answer"
    assert home.exists()
    assert headrace(tmp_path, "clean", "--yes")[0] == 0
    assert not home.exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    code, output = headrace(tmp_path, "clean", "--yes", HEADRACE_HOME=str(tmp_path / "photos"))
    assert code == 2
    assert "does not contain Headrace's state" in output
    assert (tmp_path / "photos" / "one.jpg").exists()


def test_status_down_and_logs_without_servers(tmp_path: Path) -> None:
    code, output = headrace(tmp_path, "status", "lineage", "--json")
    assert code == 0
    status = json.loads(output)
    assert [(service["name"], service["state"]) for service in status["services"]] == [
        (name, "stopped") for name in ("kafka", "postgres", "connect", "registry", "trino")
    ]
    assert [(stream["label"], stream["rows"], stream["lag"]) for stream in status["streams"]] == [("lineage.events", 0, None)]
    assert headrace(tmp_path, "down") == (0, "nothing was running\n")
    code, output = headrace(tmp_path, "logs", "kafka")
    assert code == 1
    assert "kafka has no log" in output
    assert headrace(tmp_path, "logs", "hbase")[0] == 2


def test_status_shows_other_pipelines_beside_a_broken_one(here: Here, tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "broken", {"pipeline.yml": "name: broken\n"})
    code, output = here("status")
    assert code == 0
    assert "lineage.events" in output
    assert "broken can't be loaded\npipelines/broken/pipeline.yml:1: the document has no " in output
    status = json.loads(here("status", "--json")[1])
    assert "lineage.events" in {stream["label"] for stream in status["streams"]}
    assert [(pipeline["name"], pipeline["where"]) for pipeline in status["broken"]] == [
        ("broken", "pipelines/broken/pipeline.yml:1")
    ]
    code, output = here("status", "broken")
    assert code == 2
    assert output.startswith("pipelines/broken/pipeline.yml:1: ")


def test_log_of_spark(tmp_path: Path) -> None:
    (tmp_path / ".headrace" / "logs").mkdir(parents=True)
    (tmp_path / ".headrace" / "logs" / "spark.log").write_text("one\ntwo\n")
    assert headrace(tmp_path, "logs", "spark", "--lines", "1") == (0, "two\n")


def test_connectors_without_capture(here: Here) -> None:
    for command in ("register", "restart", "delete", "reset"):
        code, output = here("connectors", command, "lineage")
        assert code == 2
        assert "lineage does not capture a Postgres database" in output
    assert here("connectors", "status", "lineage", "--json") == (0, "[]\n")


def test_seeder_requires_a_seeder_in_the_pipeline(here: Here) -> None:
    code, output = here("seed", "serve", "lineage")
    assert code == 2
    assert "the pipeline has no seeder" in output
    assert "Add seeder: {file: sources/seeder.py, port: 8000}" in output
