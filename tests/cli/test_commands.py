"""What each command says and how it ends, where nothing has to be started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
        "heavy = ('pyspark', 'py4j', 'pyarrow', 'pyiceberg', 'duckdb', 'polars', 'fastavro', 'confluent_kafka', 'sqlglot')\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    reads_sql = arguments == ["check"]
    assert done.stdout.splitlines()[-1] == ("loaded: ['sqlglot']" if reads_sql else "loaded: []")


def test_help_names_every_command(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, said = here("--help")
    assert code == 0
    assert "..." not in said.split("Commands:")[1], "a sentence is whole, also on a narrow terminal"
    assert "export dbt" in said
    assert "Exit codes: 0 done" in said
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
            "seeder",
            "psql",
            "land",
            "run",
        ),
        *("topics", "notebook", "stage-config", "submit"),
        *("serve", "query", "lineage", "export", "commits", "verify", "maintain", "forget", "doctor", "clean"),
    ):
        assert f"\n  {command} " in said


@pytest.mark.parametrize(
    "command", ["land", "run", "submit", "check", "commits", "verify", "generate", "status", "demo", "lineage"]
)
def test_an_unknown_pipeline(tmp_path: Path, command: str) -> None:
    code, said = headrace(tmp_path, command, "linage")
    assert code == 2
    assert 'not found: pipeline "linage"' in said
    assert "lineage" in said.splitlines()[-1], "it says which one may have been meant"
    assert "Traceback" not in said


def test_nobody_is_forgotten_where_nobody_is_declared(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "forget", "lineage", "--email", "ann@example.com")
    assert code == 1
    assert "the pipeline does not declare people" in said
    assert "Add people: to pipeline.yml" in said
    code, said = headrace(tmp_path, "forget", "lineage")
    assert code == 2
    assert "--email ADDRESS, --id SOURCE:ID or --requested" in said
    code, said = headrace(tmp_path, "forget", "lineage", "--id", "7")
    assert code == 2
    assert "an id must be SOURCE:ID" in said


def test_check(tmp_path: Path) -> None:
    assert headrace(tmp_path, "check", "lineage") == (0, "lineage: OK\n")
    assert headrace(tmp_path, "new", "mine")[0] == 0
    names = [*(found.name for found in list_pipelines(BUILT_IN)), "mine"]
    assert headrace(tmp_path, "check")[1].splitlines() == [f"{name}: OK" for name in names]
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


def test_what_is_piped_of_lineage_is_whole(tmp_path: Path) -> None:
    column = "payments_db.payment_transactions.signed_amount"
    made = json.loads(headrace(tmp_path, "lineage", "payments", column, "--json")[1])["expressions"]
    code, said = headrace(tmp_path, "lineage", "payments", column)
    assert code == 0
    assert len("; ".join(made)) > 240
    assert said.splitlines()[0] == f"{column}  {'; '.join(made)}"


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


def test_export_airflow(tmp_path: Path) -> None:
    write_shop(tmp_path)
    code, said = headrace(tmp_path, "export", "airflow", "shop", "--schedule", "@hourly")
    assert (code, said.split(".")[0]) == (0, "dags/shop")
    compile((tmp_path / "dags/shop.py").read_text(encoding="utf-8"), "shop.py", "exec")
    code, said = headrace(tmp_path, "export", "airflow", "shop", "--schedule", "now and then")
    assert code == 2
    assert "--schedule: " in said


def test_building_alone_needs_a_table(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "build", "payments", "--alone")
    assert code == 2
    assert "--alone requires --table TABLE" in said


def test_new(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "new", "mine")
    assert code == 0
    assert "then run: headrace check mine" in said
    assert (tmp_path / "pipelines" / "mine" / "pipeline.yml").exists()
    code, said = headrace(tmp_path, "new", "mine")
    assert code == 2
    assert "mine" in said


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
def test_a_query_that_can_not_be_answered(here: Here, sql: str, says: str) -> None:
    code, said = here("query", sql)
    assert code == 2, "an argument is wrong"
    assert says in said
    assert len(said.splitlines()) == 2, "what and where, then what to do"
    for leaked in ("Traceback", "root:", "sqlglot", " Error: ", "LINE "):
        assert leaked not in said


def test_a_query_that_fails_on_a_value_is_no_wrong_argument(here: Here) -> None:
    code, said = here("query", "SELECT CAST(text AS INT) FROM (VALUES ('1'), ('a')) AS t(text)")
    assert code == 1
    assert "could not convert string 'a' to INT32" in said


def test_a_table_that_is_called_otherwise(here: Here, tmp_path: Path) -> None:
    shop = ShopLake(tmp_path)
    shop.watch.close()
    shop.land(["a"])
    for asked in ("charges", "raw.chrges"):
        assert here("query", f"SELECT * FROM {asked}") == (
            2,
            f'query: table not found: "{asked}"\nDid you mean "raw.charges"?\n',
        )
    _, said = here("query", "SELECT coutry FROM raw.charges")
    assert 'query:1:8: referenced column "coutry" not found in FROM clause\nSimilar names are: country, ' in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["query", "SELECT 1", "--json", "--csv"], "--json and --csv can't both be"),
        (["lineage", "lineage", "--json", "--mermaid"], "--json and --mermaid can't both be"),
    ],
)
def test_one_form_at_a_time(here: Here, arguments: list[str], says: str) -> None:
    assert here(*arguments) == (2, f"{says}\nLeave one of them out.\n")


def test_a_query_without_tables(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "query", "SELECT 1 AS one, NULL AS nothing, 'é' AS text", "--json")
    assert (code, json.loads(said)) == (0, [{"one": 1, "nothing": None, "text": "é"}])
    assert headrace(tmp_path, "query", "SELECT 1 AS one, NULL AS nothing, 'a,b' AS text", "--csv") == (
        0,
        'one,nothing,text\n1,,"a,b"\n',
    )


@pytest.mark.parametrize("command", ["commits", "verify"])
def test_before_anything_was_landed(here: Here, tmp_path: Path, command: str) -> None:
    assert here(command, "lineage") == (
        1,
        "pipeline lineage: nothing has been landed yet\n"
        "Run the demo: headrace demo lineage   or: "
        "headrace generate lineage --count 1000, then headrace land lineage --once\n",
    )
    assert not (tmp_path / ".headrace").exists(), "no broker is started to say so"
    write_shop(tmp_path)
    assert here(command, "shop")[1].splitlines()[1] == "Send events to shop_charges, then run: headrace land shop --once"


def test_a_pipeline_without_layer_tables(here: Here) -> None:
    assert here("plan", "lineage") == (0, "lineage has no layer tables to build\n")
    assert here("build", "lineage") == (0, "lineage has no layer tables to build\n")
    assert here("quality", "lineage") == (0, "lineage has no expectations: it has no layer tables\n")
    for command in ("plan", "quality"):
        assert here(command, "lineage", "--json") == (0, "[]\n")


def test_plan_explains_all_tables_or_one(here: Here) -> None:
    code, said = here("plan", "weather", "--explain")
    assert code == 0
    assert "rebuilds all rows: it was never built" in said
    plain, explained = (json.loads(here("plan", "payments", "--json", *more)[1]) for more in ((), ("--explain",)))
    assert [{name: value for name, value in each.items() if name != "explained"} for each in explained] == plain
    assert all(each["explained"]["strategy"] for each in explained)
    assert all(each["explained"]["access_paths"] for each in explained if each["reads"])
    name = plain[-1]["table"]
    found = json.loads(here("plan", "payments", "--table", name, "--explain", "--json")[1])
    assert [each["table"] for each in found if "explained" in each] == [name]


def test_layer_tables_without_expectations(here: Here, tmp_path: Path) -> None:
    assert headrace(tmp_path, "new", "mine", "--from", "weather")[0] == 0
    path = tmp_path / "pipelines/mine/windows/weather_by_minute.sql"
    path.write_text(re.sub(r"^expect:\n(  .*\n)+", "", path.read_text(), flags=re.MULTILINE))
    assert here("quality", "mine") == (0, "mine has no expectations: none of its tables declares expect:\n")


def test_doctor(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text('[local]\nspark.master = "local[1]"\n')
    code, said = headrace(tmp_path, "doctor", "--json", HEADRACE_BATCH_MAX_RECORDS="77")
    assert code == 0
    found = json.loads(said)
    origins = {one["name"]: (one["value"], one["origin"]) for one in found["settings"]}
    assert set(origins) == {"profile", *(spec.name for spec in SETTING_SPECS)}
    assert origins["batch.max_records"] == ("77", "environment (HEADRACE_BATCH_MAX_RECORDS)")
    assert origins["spark.master"] == ("local[1]", "headrace.toml [local]")
    assert origins["home"] == (str(tmp_path / ".headrace"), "default")
    assert {one["subject"] for one in found["findings"]} >= {"Python", "Java", "disk", "Kafka", "catalog"}
    assert {one["state"] for one in found["findings"]} <= {"ok", "attention"}


@pytest.mark.parametrize("address", ["postgresql+nothing://me:secret@nowhere/db", "postgresql+no://nowhere/db?password=secret"])
def test_doctor_finds_a_catalog_that_does_not_answer_and_keeps_its_password(tmp_path: Path, address: str) -> None:
    environ = {"HEADRACE_CATALOG_URI": address}
    for arguments in (["doctor"], ["doctor", "--json"]):
        code, said = headrace(tmp_path, *arguments, **environ)
        assert code == 1
        assert "catalog" in said
        assert "secret" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[local]\nnothing = 1\n", 'unknown setting "nothing" in [local]'),
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
    assert "nothing to remove" in headrace(tmp_path, "clean")[1]
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
    assert "does not contain Headrace's state" in said
    assert (tmp_path / "photos" / "one.jpg").exists()


def test_status_down_and_logs_where_nothing_runs(tmp_path: Path) -> None:
    code, said = headrace(tmp_path, "status", "lineage", "--json")
    assert code == 0
    found = json.loads(said)
    assert [(one["name"], one["state"]) for one in found["services"]] == [
        (name, "stopped") for name in ("kafka", "postgres", "connect", "registry", "trino")
    ]
    assert [(one["label"], one["rows"], one["lag"]) for one in found["streams"]] == [("lineage.events", 0, None)]
    assert headrace(tmp_path, "down") == (0, "nothing was running\n")
    code, said = headrace(tmp_path, "logs", "kafka")
    assert code == 1
    assert "kafka has no log" in said
    assert headrace(tmp_path, "logs", "hbase")[0] == 2


def test_status_shows_the_others_where_one_pipeline_is_broken(here: Here, tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines" / "broken", {"pipeline.yml": "name: broken\n"})
    code, said = here("status")
    assert code == 0
    assert "lineage.events" in said
    assert "broken can't be loaded\npipelines/broken/pipeline.yml:1: the document has no " in said
    found = json.loads(here("status", "--json")[1])
    assert "lineage.events" in {each["label"] for each in found["streams"]}
    assert [(each["name"], each["where"]) for each in found["broken"]] == [("broken", "pipelines/broken/pipeline.yml:1")]
    code, said = here("status", "broken")
    assert code == 2
    assert said.startswith("pipelines/broken/pipeline.yml:1: ")


def test_the_log_of_spark(tmp_path: Path) -> None:
    (tmp_path / ".headrace" / "logs").mkdir(parents=True)
    (tmp_path / ".headrace" / "logs" / "spark.log").write_text("one\ntwo\n")
    assert headrace(tmp_path, "logs", "spark", "--lines", "1") == (0, "two\n")


def test_connectors_of_pipelines_that_capture_nothing(here: Here) -> None:
    for command in ("register", "restart", "delete", "reset"):
        code, said = here("connectors", command, "lineage")
        assert code == 2
        assert "lineage does not capture a Postgres database" in said
    assert here("connectors", "status", "lineage", "--json") == (0, "[]\n")


def test_a_pipeline_without_a_seeder_says_so(here: Here) -> None:
    code, said = here("seeder", "lineage")
    assert code == 2
    assert "the pipeline has no seeder" in said
    assert "Add seeder: {file: sources/seeder.py, port: 8000}" in said
