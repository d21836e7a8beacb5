"""Read-only commands never create state."""

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
def test_read_only_commands_create_nothing(here: Here, tmp_path: Path, arguments: list[str]) -> None:
    code, output = here(*arguments)
    assert code in (0, 1), output
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_a_missing_catalog(here: Here) -> None:
    here("plan", "payments")
    assert "does not exist yet; the first landing creates it" in here("doctor")[1]


def test_watch_finds_a_catalog_created_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.app.watching._EVERY_SECONDS", 0.0)
    shop = ShopLake(tmp_path)
    try:
        assert shop.watch.figures()[0].streams[0].rows == 0
        assert not (tmp_path / ".headrace").exists()
        shop.land(["a", "b"])
        assert shop.watch.figures()[0].streams[0].rows == 2
    finally:
        shop.watch.close()
