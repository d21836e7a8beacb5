"""Looking creates nothing: commands that only ask leave an empty folder empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Here
from tests.serving.shop_lake import ShopLake


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "payments"],
        ["plan", "payments", "--explain"],
        ["quality", "payments"],
        ["query", "SELECT 1"],
        ["commits", "lineage"],
        ["status"],
        ["doctor"],
        ["check"],
        ["lineage", "payments"],
        ["topics"],
        ["topics", "lineage-input"],
        ["logs"],
        ["down"],
        ["generate", "--stop"],
    ],
    ids=" ".join,
)
def test_an_empty_folder_stays_empty(here: Here, tmp_path: Path, arguments: list[str]) -> None:
    code, said = here(*arguments)
    assert code in (0, 1), said
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_that_there_is_no_catalog_after_a_look(here: Here) -> None:
    here("plan", "payments")
    assert "does not exist yet; the first landing creates it" in here("doctor")[1]


def test_who_watches_finds_a_catalog_that_is_made_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.app.watching._EVERY_SECONDS", 0.0)
    shop = ShopLake(tmp_path)
    try:
        assert shop.watch.figures()[0].streams[0].rows == 0
        assert not (tmp_path / ".headrace").exists()
        shop.land(["a", "b"])
        assert shop.watch.figures()[0].streams[0].rows == 2
    finally:
        shop.watch.close()
