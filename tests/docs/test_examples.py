"""The examples of the guides, landed and built: their rows are the ones that the pages show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.sessions.building import build, open_lake
from headrace.spec import Pipeline
from tests.docs.blocks import DOCS, read_blocks
from tests.docs.test_code_blocks import load_files
from tests.support.lake import Lake
from tests.support.samples import send_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark]


def write_example(lake: Lake, page: str, name: str) -> Pipeline:
    """Write the files of a page for a pipeline into the lake, and return the pipeline, which has topics of its own."""
    blocks = [block for block in read_blocks(DOCS / "how-to" / page) if str(block.marked("file")).startswith(f"{name}/")]
    load_files(blocks, lake.folder)
    folder = lake.folder / "pipelines" / name
    folder.parent.mkdir()
    shutil.move(lake.folder / name, folder)
    file = folder / "pipeline.yml"
    file.write_text(file.read_text(encoding="utf-8").replace("topic: ", f"topic: {Path(page).stem}-"), encoding="utf-8")
    return lake.pipeline(name)


def build_table(lake: Lake, pipeline: Pipeline, name: str, spark: SparkSession) -> None:
    lake.land(spark, pipeline)
    assert [outcome.error for outcome in build(open_lake(lake.settings(), pipeline, spark), table=name) if outcome.error] == []


def test_new_pipeline_generates_lands_and_builds(lake: Lake, spark: SparkSession) -> None:
    pipeline = write_example(lake, "new-pipeline.md", "orders")
    lake.command("generate", "orders", "--count", "200", "--rate", "0")
    build_table(lake, pipeline, "customer_totals", spark)
    charges = lake.rows("shop_db.payment_charges", "amount")
    totals = lake.rows("shop_db.customer_totals")
    assert (len(charges), sum(row["charges"] for row in totals)) == (200, 200)
    assert sum(row["total"] for row in totals) == sum(row["amount"] for row in charges)


def test_quality_example_quarantines_rows(lake: Lake, spark: SparkSession) -> None:
    pipeline = write_example(lake, "quality.md", "payments")
    sample = pipeline.folder / "sample" / "charges.jsonl"
    charge = json.loads(sample.read_text(encoding="utf-8").splitlines()[0])
    with sample.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**charge, "event_id": "evt_negative", "amount": "-5.00"}) + "\n")
    list(send_sample(lake, pipeline))
    build_table(lake, pipeline, "checked_charges", spark)
    events = {row["event_id"] for row in lake.rows("payments_db.checked_charges")}
    assert charge["event_id"] in events
    assert "evt_negative" not in events
    assert any("amount is positive" in row["reason"] for row in lake.rows("metadata.quarantine"))


def test_history_example_keeps_versions(lake: Lake, spark: SparkSession) -> None:
    pipeline = write_example(lake, "history.md", "payments")
    list(send_sample(lake, pipeline))
    build_table(lake, pipeline, "subscription_history", spark)
    rows = lake.rows("payments_db.subscription_history", "subscription_id", "is_current", "valid_to")
    assert {row["is_current"] for row in rows} == {True, False}
    assert all((row["valid_to"] is None) == row["is_current"] for row in rows)
