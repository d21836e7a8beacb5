"""The public names, and what importing them loads."""

from __future__ import annotations

import subprocess
import sys

import headrace
from headrace import errors


def test_names_of_headrace() -> None:
    assert sorted(headrace.__all__) == [
        *("Delivery", "Message", "Payload", "PayloadError", "Project", "Received", "Rows", "Run", "StreamLanding", "Table"),
        *("TableBuild", "open", "receive", "table", "webhook"),
    ]
    assert [name for name in headrace.__all__ if not hasattr(headrace, name)] == []


def test_names_of_errors() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert sorted(errors.__all__) == sorted(defined)
    assert sorted(defined) == [
        *("BadQueryError", "BuildError", "BusyError", "CompactedError", "ErasureError", "GapError", "HeadraceError"),
        *("LandingError", "LockedError", "MissingLibraryError", "NotFoundError", "OutdatedError", "PublishError"),
        *("QualityError", "QueryError", "RetryableError", "ServiceError", "SettingsError", "SpecError", "TakenOverError"),
        *("TopicResetError", "UnavailableError"),
    ]


def test_importing_headrace_loads_no_engine() -> None:
    code = "import headrace, sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "headrace" in loaded
    engines = {"pyspark", "pyarrow", "duckdb", "polars", "pyiceberg", "pandas", "sqlglot", "confluent_kafka", "rich", "typer"}
    assert loaded & engines == set()
