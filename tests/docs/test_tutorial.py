"""The tutorial's shell blocks work, word for word and in their order, in an empty folder with its own servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.docs.blocks import DOCS, ROOT, TUTORIAL, Block, read_blocks
from tests.support.application import OURS, Application, find_processes
from tests.support.class_archive import spark_environ

README = ROOT / "README.md"
SQLITE = re.compile(r"-(wal|shm)$")
"""The ends of files that SQLite keeps beside a database in use."""
NUMBER = re.compile(r"\d[\d.,]*")
PATIENCE_SECONDS = 120.0
"""How long a command is repeated that waits for the application in the second terminal."""
INTERRUPTED = (0, 130, -signal.SIGINT)
"""The exit codes of a command after Ctrl-C."""


@dataclass
class Reader:
    """Somebody who types the tutorial's commands into two terminals, in one folder."""

    folder: Path
    environ: dict[str, str]
    second_terminal: Application | None = None

    def start(self, script: str) -> Application:
        log = self.folder.parent / f"output-{len(list(self.folder.parent.glob('output-*')))}.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-ec", script],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Application(process, log)

    def follow(self, block: Block) -> str:
        """Run a block where and as often as the comment above it says, and return its last output."""
        awaited = block.marked("second terminal")
        if awaited or block.marked("after Ctrl-C"):
            self.end_second_terminal()
        if awaited:
            self.second_terminal = self.start(block.text)
            self.second_terminal.wait_to_say(awaited)
            return self.second_terminal.said()
        expected = block.marked("again until") or ""
        output = self.type(block)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while expected not in output:
            assert time.monotonic() < deadline, f"{block} doesn't show {expected!r}:\n{output}"
            output = self.type(block)
        return output

    def type(self, block: Block) -> str:
        """Run a block in the first terminal, whose variables stay. Interrupt it when it has said its text."""
        variables = self.folder.parent / "variables"
        application = self.start(f"[ ! -e {variables} ] || . {variables}\n{block.text}\nexport -p > {variables}")
        try:
            said = block.marked("until Ctrl-C")
            if said:
                application.wait_to_say(said)
                interrupt(application)
            code = application.wait()
            assert code in (INTERRUPTED if said else (0,)), f"{block} ended with {code}:\n{application.said()}"
            return application.said()
        finally:
            application.end()

    def end_second_terminal(self) -> None:
        """Press Ctrl-C in the second terminal if something runs there."""
        if self.second_terminal is None:
            return
        interrupt(self.second_terminal)
        code = self.second_terminal.wait()
        assert code in INTERRUPTED, f"the second terminal ended with {code}:\n{self.second_terminal.said()}"
        self.second_terminal = None


def interrupt(application: Application) -> None:
    os.killpg(application.pid, signal.SIGINT)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("headrace", "-m headrace.cli"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    folder = tmp_path / "tutorial"
    folder.mkdir()
    plain = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    path = os.pathsep.join([str(programs), plain["PATH"]])
    environ = {**plain, **spark_environ(), "PATH": path, "COLUMNS": "120", "HEADRACE_HOME": str(folder / ".headrace")}
    reader = Reader(folder, environ)
    yield reader
    if reader.second_terminal:
        reader.second_terminal.end()
    for process in find_processes(folder / ".headrace"):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


@pytest.mark.services
@pytest.mark.spark
def test_tutorial_works_word_for_word(reader: Reader) -> None:
    output = ""
    for block in read_blocks(TUTORIAL):
        if block.language == "text":
            assert missing_lines(block.text, output) == [], f"{block} is not what the command before it prints:\n{output}"
        elif block.language == "bash" and not block.marked("not run"):
            output = reader.follow(block)
            assert "panicked at" not in output, f"{block} shows a panic of Rust:\n{output}"
    assert undocumented(reader.folder / ".headrace") == []


def undocumented(home: Path) -> list[str]:
    """Return the files and folders of the state that docs/reference/files.md does not name."""
    page = DOCS.joinpath("reference", "files.md").read_text(encoding="utf-8")
    layout = page.partition("\n.headrace/\n")[2].partition("```")[0]
    names = {SQLITE.sub("", path.name) for path in home.iterdir()}
    return sorted(name for name in names if not re.search(rf"\s{re.escape(name)}(?:/|\s)", layout))


def missing_lines(shown: str, output: str) -> list[str]:
    """Return the lines of a text that an output lacks, whatever their numbers are."""
    printed = {NUMBER.sub("0", line).strip() for line in output.splitlines()}
    return [line for line in shown.splitlines() if NUMBER.sub("0", line).strip() not in printed | {""}]


def test_readme_shows_the_same_output() -> None:
    shown = next(block.text for block in read_blocks(TUTORIAL) if block.language == "text")
    lines = [line.strip() for line in README.read_text(encoding="utf-8").splitlines() if line.strip().startswith(("┃", "│"))]
    assert lines
    assert missing_lines("\n".join(lines), shown) == []


def test_changed_output_is_noticed() -> None:
    assert missing_lines("rows  12\n\nseconds 1.5", "rows  7\nseconds 2") == []
    assert missing_lines("rows  12\nmissing 0", "rows  7\nseconds 2") == ["missing 0"]
