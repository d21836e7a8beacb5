"""pyproject.toml, the locks and the version: what is installed is what was tested, and errors name extras that exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from headrace.version import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
RUNTIME = [Requirement(line) for line in (*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines))]
LOCKS = [ROOT / "requirements.lock", *sorted((ROOT / "tests/export").glob("*.lock"))]
NARROW = {"jgo", "kafka-python", "pyiceberg", "pyspark", "sqlglot", "splink", "uvicorn"}
"""Packages whose private API Headrace uses."""


def locked_versions() -> dict[str, Version]:
    lines = re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", LOCKS[0].read_text(encoding="utf-8"), re.MULTILINE)
    return {name: Version(version) for name, version in lines}


@pytest.mark.parametrize("requirement", RUNTIME, ids=str)
def test_runtime_dependency_is_a_range_that_holds_the_locked_version(requirement: Requirement) -> None:
    operators = {part.operator for part in requirement.specifier}
    assert operators <= {">=", "<"}
    assert ">=" in operators
    assert "<" in operators or requirement.name not in NARROW
    assert requirement.specifier.contains(locked_versions()[requirement.name])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_has_hashes_and_no_addresses(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^--?[a-z]", text, re.MULTILINE), "an option of pip, such as an index"
    packages = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    assert all("--hash=sha256:" in package for package in packages if package.strip())


def test_extras_that_errors_name_exist() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    named = {name for text in sources for name in re.findall(r"headrace\[([a-z]+)\]", text)}
    assert named == EXTRAS.keys() - {"glue", "hive"}, "those two are named after the setting catalog.type"


def test_version_is_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    released = Version(__version__).base_version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[?([\d.]+)\]?", changelog, re.MULTILINE)
    assert newest
    assert newest[1] == released
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    assert {service["image"].rpartition(":")[2] for service in services if "build" in service} == {released}


def test_package_is_typed() -> None:
    assert (ROOT / "src/headrace/py.typed").is_file()
