from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.spec import copy_pipeline, load_pipeline
from headrace.spec.model.pipeline import Pipeline


@pytest.fixture
def weather(tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    """The weather pipeline, copied with a topic of this test."""
    name = "w" + re.sub(r"[^a-z0-9]+", "_", request.node.name.lower())[-60:]
    copy_pipeline("weather", target_name=name, folder=tmp_path)
    return load_pipeline(name, environ={}, folder=tmp_path)
