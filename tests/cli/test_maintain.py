"""What `headrace maintain` says, and whom it keeps away, where nothing has to be started."""

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


def test_where_there_are_no_tables(here: Here, tmp_path: Path) -> None:
    for arguments in ([], ["--dry-run"], ["lineage"]):
        code, said = here("maintain", *arguments)
        assert (code, said.strip()) == (0, "there are no tables yet")
    assert not (tmp_path / ".headrace/catalog.db").exists(), "who has nothing to do makes nothing"


def test_a_table_that_there_is_not(here: Here) -> None:
    code, said = here("maintain", "lineage", "--table", "lineage.event")
    assert code == 2
    assert 'not found: table "lineage.event"' in said
    assert "lineage.events" in said.splitlines()[-1]


def test_what_would_be_done(here: Here, tmp_path: Path) -> None:
    lake = ShopLake(tmp_path)
    for number in range(6):
        lake.land([f"ch_{number}"])
    (found,) = json.loads(here("maintain", "shop", "--table", "charges", "--dry-run", "--json")[1])
    assert (found["table"], found["files"], found["files_to_compact"], found["files_to_delete"]) == ("raw.charges", 6, 6, 0)
    assert "raw.charges" in here("maintain", "--dry-run")[1]


@pytest.mark.parametrize("held", ["commerce", SHARED])
def test_an_erasure_and_maintenance_keep_each_other_away(tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "maintain_lock", partial(maintain_lock, wait_seconds=0.1))
    settings = load_settings(flags={}, environ={}, folder=tmp_path)
    pipeline = load_pipeline("commerce", environ={}, folder=tmp_path)
    with (
        maintain_lock(settings, held),
        pytest.raises(LockedError, match="another application already maintains"),
        erasing_session(settings, pipeline, report=lambda sentence: None),
    ):
        pass
