"""State is private to its owner: new files, and files of an earlier version."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.settings import Settings, load_settings, private
from headrace.settings.private import inherited_umask, protect_state


@pytest.fixture(autouse=True)
def umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(private, "_inherited", None)
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def load(folder: Path, **environ: str) -> Settings:
    return load_settings(flags={}, environ=environ, folder=folder)


def test_protect_state_makes_new_files_private(tmp_path: Path) -> None:
    settings = load(tmp_path)
    protect_state(settings)
    assert not settings.home.exists(), "it creates nothing itself"
    (settings.home / "kafka").mkdir(parents=True)
    (settings.home / "catalog.db").touch()
    assert [mode(settings.home), mode(settings.home / "kafka"), mode(settings.home / "catalog.db")] == [0o700, 0o700, 0o600]


def test_protect_state_restricts_existing_state(tmp_path: Path) -> None:
    lake, catalog = tmp_path / "lake", tmp_path / "cat.db"
    lake.mkdir(mode=0o755)
    catalog.touch(mode=0o644)
    settings = load(tmp_path, HEADRACE_WAREHOUSE=f"file://{lake}", HEADRACE_CATALOG_URI=f"sqlite:///{catalog}")
    settings.home.mkdir(mode=0o755)
    protect_state(settings)
    assert [mode(settings.home), mode(lake), mode(catalog)] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("permissions", [0o1777, 0o2775])
def test_protect_state_keeps_shared_folders(tmp_path: Path, permissions: int) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(permissions)
    protect_state(load(tmp_path, HEADRACE_WAREHOUSE=f"file://{lake}"))
    assert mode(lake) == permissions


def test_protect_state_skips_shared_state(tmp_path: Path) -> None:
    settings = load(tmp_path, HEADRACE_STATE_SHARED="true")
    settings.home.mkdir(mode=0o755)
    protect_state(settings)
    (settings.home / "new").mkdir()
    assert [mode(settings.home), mode(settings.home / "new")] == [0o755, 0o755]


def test_inherited_umask_applies_to_output_files(tmp_path: Path) -> None:
    protect_state(load(tmp_path))
    protect_state(load(tmp_path))
    with inherited_umask():
        (tmp_path / "exported").touch()
    (tmp_path / "state").touch()
    assert [mode(tmp_path / "exported"), mode(tmp_path / "state")] == [0o644, 0o600]
