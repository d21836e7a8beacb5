"""Files with secrets: readable only by their owner, and atomic for concurrent commands."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

from headrace.secret_files import keep_secret, write_privately

AT_ONCE, ROUNDS = 8, 40


def do_at_once(action: Callable[[], str]) -> list[str]:
    """Return the results of several threads that start at the same time."""
    ready = Barrier(AT_ONCE)

    def act(_: int) -> str:
        ready.wait()
        return action()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(act, range(AT_ONCE)))


def test_keep_secret_generates_once_and_restricts_to_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    assert keep_secret(path) == keep_secret(path) != keep_secret(tmp_path / "other")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keep_secret_returns_one_secret_to_concurrent_callers(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        path = tmp_path / f"secret-{number}"
        assert set(do_at_once(partial(keep_secret, path))) == {path.read_text().strip()}
    assert len(list(tmp_path.iterdir())) == ROUNDS


def test_write_privately_is_atomic(tmp_path: Path) -> None:
    path = tmp_path / "spark-defaults.conf"
    texts = [f"{letter * 100_000}\n" for letter in "ab"]
    write_privately(path, texts[0])

    def write_and_read() -> str:
        content = ""
        for text in texts * (ROUNDS // 4):
            write_privately(path, text)
            content = path.read_text()
            assert content in texts
        return content

    do_at_once(write_and_read)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_write_privately_skips_an_unchanged_file(tmp_path: Path) -> None:
    path = tmp_path / "private"
    write_privately(path, "one")
    os.utime(path, (1, 1))
    write_privately(path, "one")
    assert path.stat().st_mtime == 1
    path.chmod(0o644)
    write_privately(path, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
