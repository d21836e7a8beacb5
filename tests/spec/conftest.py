"""A working folder with one valid pipeline, for tests to break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.spec import Check, check_pipeline
from tests.support.folders import write_files

PIPELINE = """\
name: mine
about: a test
trigger: 10s
streams:
  charges:
    topic: charges
    partitions: 3
    format: json
    schema: schemas/charge.sql
    table: raw.charges
    event_time: {column: happened, from: at, unit: s}
    partition_by: [days(created), country]
    generator: generators/charges.py
"""
FILES = {
    "pipeline.yml": PIPELINE,
    "schemas/charge.sql": "id STRING NOT NULL,\nat BIGINT,\ncreated TIMESTAMP,\ncountry STRING,\ntags ARRAY<STRING>\n",
    "schemas/charge.avsc": '{"type": "record", "name": "Charge", "fields": [{"name": "at", "type": "long"}]}',
    "generators/charges.py": "def events(random, now):\n    yield {}\n",
}
Checker = Callable[..., Check]


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Return the folder of a valid pipeline, ./pipelines/mine."""
    return write_files(tmp_path / "pipelines" / "mine", FILES)


@pytest.fixture
def check(pipeline: Path, tmp_path: Path) -> Checker:
    """Check the pipeline with `old` replaced by `new` in one of its files."""

    def run(old: str = "", new: str = "", *, file: str = "pipeline.yml", environ: dict[str, str] | None = None) -> Check:
        text = (pipeline / file).read_text(encoding="utf-8")
        assert old in text
        (pipeline / file).write_text(text.replace(old, new, 1), encoding="utf-8")
        return check_pipeline("mine", environ=environ or {}, folder=tmp_path)

    return run
