"""The output and locks of `headrace maintain`, without servers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from headrace.errors import LockedError
from headrace.operations.erase import forgetting
from headrace.operations.erase.forgetting import erasing_session
from headrace.sessions.lock import SHARED, maintain_lock
from headrace.settings import load_settings
from headrace.spec import load_pipeline
from tests.cli.conftest import Here
from tests.serving.shop_lake import ShopLake


def test_maintain_without_tables(here: Here, tmp_path: Path) -> None:
    for arguments in ([], ["--dry-run"], ["lineage"]):
        code, output = here("maintain", *arguments)
        assert (code, output.strip()) == (0, "there are no tables yet")
    assert not (tmp_path / ".headrace/catalog.db").exists(), "who has nothing to do makes nothing"


def test_maintain_unknown_table(here: Here) -> None:
    code, output = here("maintain", "lineage", "--table", "lineage.event")
    assert code == 2
    assert 'not found: table "lineage.event"' in output
    assert "lineage.events" in output.splitlines()[-1]


def test_maintain_dry_run_shows_the_plan(here: Here, tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    for number in range(6):
        lake.land([f"ch_{number}"])
    (plan,) = json.loads(here("maintain", "shop", "--table", "charges", "--dry-run", "--json")[1])
    assert (plan["table"], plan["files"], plan["files_to_compact"], plan["files_to_delete"]) == ("raw.charges", 6, 6, 0)
    assert "raw.charges" in here("maintain", "--dry-run")[1]


@pytest.mark.parametrize("held", ["commerce", SHARED])
def test_maintain_and_forget_exclude_each_other(tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "maintain_lock", partial(maintain_lock, wait_seconds=0.1))
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    pipeline = load_pipeline("commerce", environ={}, folder=tmp_path)
    with (
        maintain_lock(settings, held),
        pytest.raises(LockedError, match="another application already maintains"),
        erasing_session(settings, pipeline, report=lambda sentence: None),
    ):
        pass
