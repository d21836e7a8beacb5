"""A dbt in a separate environment, since its packages require other versions of shared dependencies."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.file_locks import locked

LOCK = Path(__file__).with_name("dbt.lock")
_INSTALL_SECONDS = 600.0
Dbt = Callable[..., str]


@pytest.fixture(scope="session")
def dbt(request: pytest.FixtureRequest) -> Dbt:
    """Return a function that runs dbt in a project's folder and returns its output. dbt is installed once from a lock file."""
    if request.config.cache is None:
        raise RuntimeError("dbt is kept in pytest's cache, which is switched off")
    name = f"dbt-{sys.version_info[0]}.{sys.version_info[1]}-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    folder = Path(request.config.cache.mkdir("headrace")) / name
    with locked(folder.with_suffix(".lock"), timeout=_INSTALL_SECONDS):  # the tests run in several processes
        if not (folder / "installed").exists():
            _install(folder)

    def run(project: Path, *arguments: str, fails: bool = False, **environ: str) -> str:
        ours = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "DBT_", "PYTHON"))}
        command = [str(folder / "bin/dbt"), "--no-use-colors", "--no-version-check", *arguments]
        done = subprocess.run(command, cwd=project, env={**ours, **environ}, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout

    return run


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    subprocess.run([folder / "bin/python", "-m", "pip", *install, "-r", LOCK], check=True)
    (folder / "installed").touch()
