"""The code of the guide to Python runs, block after block, on a real lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from tests.docs.blocks import DOCS, read_blocks
from tests.support.lake import Lake
from tests.support.orders import order, send_orders, write_shop
from tests.support.spark import use_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = DOCS / "how-to" / "python.md"


@pytest.mark.services
def test_guide_runs(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = lake.folder / "shop"
    write_shop(shop)
    for name, value in {**lake.environ, "HEADRACE_HOME": str(shop / ".headrace"), "ORDERS_TOPIC": lake.topic}.items():
        monkeypatch.setenv(name, value)
    use_spark(monkeypatch, spark)
    with headrace.open(shop) as project:
        project.land()  # creates the topic
    send_orders(lake.servers, lake.topic, [order("a", "10.00"), order("b", "-1.00"), order("c", "5.50", day=2)])
    monkeypatch.chdir(lake.folder)
    names: dict[str, object] = {}
    blocks = [block for block in read_blocks(GUIDE) if block.marked("run")]
    assert len(blocks) > 4
    for block in blocks:
        exec(compile(block.text, str(block), "exec"), names)
    said = capsys.readouterr().out.splitlines()
    for line in (
        "('shop',)",
        "shop.orders 3 0",
        "shop.revenue built 2",
        "2026-01-02 5.50",
        'Did you mean "shop.orders"?',
    ):
        assert line in said
