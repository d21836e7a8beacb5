"""The errors for wrong arguments and unusable environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Here


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["new", "mine", "--from", "linage"], '--from: not found: pipeline "linage"\nDid you mean "lineage"?\n'),
        (
            ["logs", "hbase"],
            'log not found: "hbase"\nLogs are: kafka, postgres, connect, registry, trino, spark, headrace, landing, build, '
            "publishing, maintenance.\n",
        ),
        (
            ["build", "weather", "--table", "x"],
            'pipeline weather: not found: table "x"\nTables are: default.weather_by_minute.\n',
        ),
        (
            ["plan", "weather", "--table", "x"],
            'pipeline weather: not found: table "x"\nTables are: default.weather_by_minute.\n',
        ),
    ],
)
def test_wrong_argument_exits_with_2(here: Here, arguments: list[str], says: str) -> None:
    assert here(*arguments) == (2, says)


@pytest.mark.parametrize("kind", ["dbt", "airflow", "dagster"])
def test_export_refuses_a_file_as_folder(here: Here, tmp_path: Path, kind: str) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    for into in ("taken", "taken/below"):
        assert here("export", kind, "weather", "--into", into) == (
            2,
            "--into: taken is a file, not a folder\nPass a folder: --into FOLDER\n",
        )


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("check", "check [OPTIONS] [PIPELINE]\n"),
        ("status", "status [OPTIONS] [PIPELINE]\n"),
        ("serve", "serve [OPTIONS] [PIPELINE]...\n"),
        ("lineage", " [TABLE[.COLUMN]]\n"),
        ("logs", "logs [OPTIONS] [SERVICE]\n"),
    ],
)
def test_usage_has_each_bracket_once(here: Here, command: str, usage: str) -> None:
    assert usage in here(command, "--help")[1]


def test_generate_stop_without_a_running_generator(here: Here) -> None:
    assert here("generate", "payments", "--stop") == (0, "no background generator of payments was running\n")


@pytest.mark.parametrize("command", [["plan", "weather"], ["query", "SELECT 1"], ["status", "lineage"]])
def test_status_explains_an_invalid_catalog(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / ".headrace").mkdir()
    (tmp_path / ".headrace" / "catalog.db").write_text("this is no database, and long enough to be read as one" * 9)
    code, output = here(*command)
    assert (code, output) == (
        2,
        "catalog.uri: the catalog can't be opened: file is not a database\n"
        "Check catalog.uri. To see its value and where it was set, run: headrace doctor\n",
    )
    monkeypatch.setenv("HEADRACE_CATALOG_URI", "nothing://me:secret@nowhere/db")
    code, output = here(*command)
    assert code == 2
    assert output.startswith("catalog.uri: the catalog can't be opened: ")
    assert "secret" not in output


def test_status_during_an_outage_of_kafka(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.kafka.topics._TIMEOUT_SECONDS", 0.2)
    servers = "127.0.0.1:1"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers)
    code, output = here("status", "lineage")
    assert code == 0
    assert output.startswith(f"{servers}: Kafka does not answer: ")
    assert "lineage.events" in output


def test_up_explains_an_unusable_home(here: Here, tmp_path: Path) -> None:
    home = tmp_path / ".headrace"
    home.write_text("a file")
    code, output = here("up")
    assert code == 1
    assert output.startswith(f"{home}")
    assert output.endswith(f"\nHeadrace keeps its state in {home}: see that it can be written, or set HEADRACE_HOME.\n")
    assert len(output.splitlines()) == 2


def test_check_refuses_an_output_in_the_warehouse(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPUT_PATH", ".headrace/warehouse")
    code, output = here("check", "lineage")
    assert code == 2
    assert "stream events of pipeline lineage: its output file://" in output
    assert "Then run: headrace check lineage" in output
    monkeypatch.setenv("OUTPUT_PATH", "elsewhere")
    assert here("check", "lineage")[0] == 0
