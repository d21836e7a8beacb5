"""The locations of a stream's files, and which files belong to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.iceberg.catalog.tables import ensure_table, open_catalog
from headrace.landing.commit_log import claim_log, log_files
from headrace.landing.places import check_outputs, logged_elsewhere
from headrace.settings import Settings, load_settings
from headrace.spec import Pipeline, TableName, load_pipeline
from headrace.spec.model.columns import landed_columns

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def here(folder: Path, **environ: str) -> tuple[Settings, Pipeline]:
    settings = load_settings(flags={}, environ={}, folder=folder)
    return settings, load_pipeline("lineage", environ={"KAFKA_TOPIC": "t", **environ}, folder=folder)


@pytest.mark.parametrize("output", [".", ".headrace", ".headrace/warehouse", ".headrace/warehouse/payments/charges/output"])
def test_check_outputs_refuses_an_output_that_overlaps_the_warehouse(tmp_path: Path, output: str) -> None:
    settings, pipeline = here(tmp_path, OUTPUT_PATH=output)
    with pytest.raises(SpecError) as refused:
        check_outputs(pipeline, settings)
    assert refused.value.where == "stream events of pipeline lineage"
    assert f"file://{(tmp_path / output).resolve()}" in refused.value.what
    assert refused.value.next_step.endswith("Then run: headrace check lineage")


@pytest.mark.parametrize("output", ["", "out", ".headrace/warehouse-of-mine", ".headrace/warehouse/lineage/events/output"])
def test_check_outputs_accepts_an_output_outside_the_warehouse(tmp_path: Path, output: str) -> None:
    settings, pipeline = here(tmp_path, OUTPUT_PATH=output)
    check_outputs(pipeline, settings)


def test_claim_log_refuses_a_second_table(tmp_path: Path) -> None:
    log = f"file://{tmp_path}/log"
    for _ in range(2):
        claim_log(log, table="lineage.events", owner="mine")
    with pytest.raises(SpecError, match="another table: of another lake, or one that was dropped"):
        claim_log(log, table="lineage.events", owner="theirs")


def test_logged_elsewhere_lists_only_files_of_the_tables_own_log(tmp_path: Path) -> None:
    settings, pipeline = here(tmp_path, OUTPUT_PATH="out", WRITE_AHEAD_COMMIT_LOG_PATH="log")
    (stream,), catalog = pipeline.streams, open_catalog(settings)
    location = f"{settings.warehouse}/lineage/events"
    table = ensure_table(catalog, TableName("lineage", "events"), columns=landed_columns(stream), location=location)
    log, outside = f"file://{tmp_path}/log", f"file://{tmp_path}/out/00000-1.parquet"
    paths = [outside, f"{settings.warehouse}/metadata/quarantine/output/part-1.parquet"]
    log_files(log, checkpoint_id=1, subtask=0, batch="b", paths=paths, now=NOW)
    assert logged_elsewhere(stream, table, settings) == frozenset(), "no table has claimed the log"
    claim_log(log, table="lineage.events", owner=str(table.metadata.table_uuid))
    assert logged_elsewhere(stream, table, settings) == {outside}
    assert logged_elsewhere(replace(stream, output=None), table, settings) == frozenset()
