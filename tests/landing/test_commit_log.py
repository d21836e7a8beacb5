"""Step 5: the write-ahead commit log."""

from __future__ import annotations

import csv
from datetime import datetime, timezone
from pathlib import Path

from headrace.landing.commit_log import log_files, read_log

NOW = datetime(2026, 2, 24, 12, 0, 0, 5, tzinfo=timezone.utc)


def log(folder: Path, *paths: str, checkpoint: int = 1, subtask: int = 0, batch: str = "batch") -> None:
    log_files(f"file://{folder}", checkpoint_id=checkpoint, subtask=subtask, batch=batch, paths=paths, now=NOW)


def test_log_files_writes_csv(tmp_path: Path) -> None:
    log(tmp_path, "file:///a,b/part-1-batch.parquet", 'file:///"q"-batch.parquet', checkpoint=5, subtask=2)
    with (tmp_path / "chk-5" / "subtask-2.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"checkpoint_id": "5", "s3_key": path, "commit_timestamp": "2026-02-24T12:00:00.000005+00:00"}
        for path in ("file:///a,b/part-1-batch.parquet", 'file:///"q"-batch.parquet')
    ]


def test_read_log_returns_entries_in_order(tmp_path: Path) -> None:
    for checkpoint, subtask in ((10, 0), (2, 11), (2, 3), (1, 0)):
        log(tmp_path, f"f-{checkpoint}-{subtask}-batch", checkpoint=checkpoint, subtask=subtask)
    uri = f"file://{tmp_path}"
    assert [(entry.checkpoint_id, entry.subtask) for entry in read_log(uri)] == [(1, 0), (2, 3), (2, 11), (10, 0)]
    assert [entry.s3_key for entry in read_log(uri, checkpoint_id=2)] == ["f-2-3-batch", "f-2-11-batch"]
    assert read_log(uri, checkpoint_id=3) == ()
    assert read_log(f"{uri}/nothing") == ()


def test_log_files_replaces_entries_of_a_retry(tmp_path: Path) -> None:
    log(tmp_path, "a-one-0", "b-one-0", batch="one")
    log(tmp_path, "a-one-1", batch="one")
    assert [entry.s3_key for entry in read_log(f"file://{tmp_path}")] == ["a-one-1"]


def test_log_files_keeps_entries_of_another_application(tmp_path: Path) -> None:
    """An application that was taken over logs the checkpoint that its successor has committed."""
    log(tmp_path, "committed-two-0", batch="two")
    log(tmp_path, "late-one-0", batch="one")
    assert [entry.s3_key for entry in read_log(f"file://{tmp_path}")] == ["committed-two-0", "late-one-0"]


def test_log_files_writes_an_empty_log(tmp_path: Path) -> None:
    log(tmp_path)
    assert (tmp_path / "chk-1" / "subtask-0.csv").read_text() == "checkpoint_id,s3_key,commit_timestamp\n"
    assert read_log(f"file://{tmp_path}") == ()
