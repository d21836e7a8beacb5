from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.servers import process
from headrace.settings import Settings, load_settings
from tests.support.ports import with_own_ports


@pytest.fixture
def settings_for(tmp_path: Path) -> Iterator[Callable[..., Settings]]:
    """Yield the settings of a temporary home, and stop its servers at the end."""

    def load(**flags: str) -> Settings:
        named = {name.replace("__", "."): value for name, value in flags.items()}
        settings = load_settings(flags=named, environ={}, folder=tmp_path)
        return settings if "kafka.port" in named or "postgres.port" in named else with_own_ports(settings)

    yield load
    for state in (tmp_path / ".headrace" / "services").glob("*.json"):
        process.stop(tmp_path / ".headrace", state.stem, grace=2.0)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def child_environ() -> dict[str, str]:
    """Return the environment for a Python child that imports this checkout."""
    source = Path(__file__).parents[2] / "src"
    return {**os.environ, "PYTHONPATH": str(source)}
