"""One line for each build, and a traceback where a message says that it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from headrace.backoff import Backoff
from headrace.build.build import Built
from headrace.errors import BuildError, CompactedError, HeadraceError, QualityError, UnavailableError
from headrace.iceberg.commits.build_phases import BuildPhases
from headrace.iceberg.ledgers.build import BuildLedger, CheckedExpectation
from headrace.sessions import building
from headrace.sessions.building import Outcome
from headrace.settings import load_settings

EMAIL = "alice@example.com"
TABLE: Any = SimpleNamespace(table="pond.latest")
CHECKED = (
    CheckedExpectation("k is not null", "quarantine", 100, 3, sample=EMAIL),
    CheckedExpectation("n > 0", "drop", 100, 2),
    CheckedExpectation("n < 9", "warn", 100, 50),
)


class Builds:
    """Builds of one table, of which each try does what a test says, and what the log has of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headrace")
        self._caplog = caplog
        self.settings = load_settings(flags={}, environ={}, folder=folder)
        self.lake: Any = SimpleNamespace(
            settings=self.settings,
            catalog=None,
            columns={},
            pipeline=SimpleNamespace(name="pond"),
            spark=SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda name, value: None)),
        )
        self.plan: Any = SimpleNamespace(action="increment", table=TABLE, entry=BuildLedger(build_id=6))
        self.tries: list[Callable[[], Built]] = []
        monkeypatch.setattr(building, "BUILDS", Backoff(0.0, attempts=3))
        monkeypatch.setattr(building, "plan_table", lambda *arguments, **named: self.plan)
        monkeypatch.setattr(building, "has_grown", lambda *arguments, **named: False)
        monkeypatch.setattr(building, "build_table", lambda lake, plan: self.tries.pop(0)())

    def built(self) -> Built:
        entry = BuildLedger(build_id=7, rows_processed=100, rows_written=95, expectations=CHECKED)
        return Built(self.plan, entry, rows=95, gone=0, read_bytes=1, written_bytes=1, seconds=0.12345, phases=BuildPhases())

    def run(self, *tries: Callable[[], Built]) -> Outcome:
        self.tries = [*tries]
        return building.build_one(self.lake, TABLE, full_refresh=False)

    @property
    def lines(self) -> list[tuple[str, str, dict[str, object]]]:
        return [(record.levelname, record.getMessage(), record.__dict__["headrace_fields"]) for record in self._caplog.records]

    @property
    def text(self) -> str:
        return (self.settings.logs / "build.log").read_text(encoding="utf-8")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Builds:
    return Builds(tmp_path, monkeypatch, caplog)


def raising(error: BaseException) -> Callable[[], Built]:
    def fail() -> Built:
        raise error

    return fail


def test_build_is_one_line(builds: Builds) -> None:
    assert builds.run(builds.built).built
    fields = {
        "pipeline": "pond",
        "table": "pond.latest",
        "build": 7,
        "action": "increment",
        "rows_in": 100,
        "rows_out": 95,
        "rows_bad": 5,
        "seconds": 0.123,
    }
    assert builds.lines == [("INFO", "built a table", fields)]
    assert not builds.settings.logs.exists()


def test_table_with_nothing_to_build_is_no_line(builds: Builds) -> None:
    builds.plan.action = "nothing"
    assert builds.run().plan
    assert builds.lines == []


def test_unexpected_error_is_chained_and_its_traceback_is_where_the_message_says(builds: Builds) -> None:
    bug = TypeError(f"a bug with {EMAIL}")
    error = builds.run(*[raising(bug)] * 3).error
    assert isinstance(error, BuildError)
    assert error.__cause__ is bug
    assert error.next_step == "Nothing was published. Read the traceback with: headrace logs build"
    assert builds.text.count("Traceback (most recent call last):") == 3
    assert builds.text.count(f"TypeError: a bug with {EMAIL}\n") == 3
    assert "pond.latest: try 1 failed\n" in builds.text
    assert [(level, said, fields["build"], fields["error"]) for level, said, fields in builds.lines] == [
        ("ERROR", f"pond.latest: try {number} failed", 7, "TypeError") for number in (1, 2, 3)
    ]
    assert EMAIL not in str(builds.lines)


def test_error_that_passes_is_logged_too(builds: Builds) -> None:
    assert builds.run(raising(OSError(28, "No space left on device")), builds.built).built
    assert [said for _, said, _ in builds.lines] == ["pond.latest: try 1 failed", "built a table"]
    assert "No space left on device" in builds.text


def test_cause_of_a_build_error_is_in_the_log(builds: Builds) -> None:
    def fail() -> Built:
        try:
            int(EMAIL)
        except ValueError as error:
            raise BuildError("Spark could not compute the table", where="latest.sql:3") from error
        raise AssertionError

    assert isinstance(builds.run(fail, fail, fail).error, BuildError)
    assert builds.text.count(f"ValueError: invalid literal for int() with base 10: '{EMAIL}'") == 3


def test_end_of_spark_is_chained_and_logged(builds: Builds) -> None:
    lost = Py4JNetworkError("Answer from Java side is empty")
    error = builds.run(raising(lost)).error
    assert isinstance(error, HeadraceError)
    assert error.__cause__ is lost
    assert "Answer from Java side is empty" in builds.text


def test_rows_that_are_not_allowed_are_counted_and_not_shown(builds: Builds) -> None:
    results = (*CHECKED, CheckedExpectation("n is even", "fail", 100, 7, sample=EMAIL))
    builds.run(raising(QualityError("7 rows failed the expectation", results=results)))
    ((level, _, fields),) = builds.lines
    assert (level, fields["rows_in"], fields["rows_bad"], fields["error"]) == ("ERROR", 100, 7, "QualityError")
    assert EMAIL not in str(builds.lines)


def test_compactions_and_outages_are_no_failures_of_a_table(builds: Builds) -> None:
    assert builds.run(raising(CompactedError("compacted")), builds.built).built
    assert isinstance(builds.run(raising(UnavailableError("the catalog is away"))).error, UnavailableError)
    assert [said for _, said, _ in builds.lines] == ["built a table"]
    assert not builds.settings.logs.exists()
