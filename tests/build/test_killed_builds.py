"""An application that is killed during a build and restarted reaches the same result."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.build.layer_lake import TABLES, LayerLake, assert_same
from tests.build.test_one_truth import events_of
from tests.support.command import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_killed_application_recovers_after_restart(spark: SparkSession, tmp_path: Path) -> None:
    """A real SIGKILL of a command between the staged files and the commit; then the command again, which needs the lock."""
    from tests.support.application import start_headrace

    layer_lake = LayerLake(tmp_path, spark, {name: TABLES[name] for name in ("a/latest.sql", "b/groups.sql")})
    layer_lake.land(events_of(Random(3), 30))
    application = start_headrace(
        "build", "pond", environ={"HEADRACE_FAULT": "kill-application@pond.groups:staged"}, folder=tmp_path
    )
    assert application.wait() != 0
    assert sum(layer_lake.rows("latest").values()) > 0
    code, said = run_command(
        "build", "pond", environ={"HEADRACE_HOME": str(layer_lake.settings.home)}, folder=tmp_path, spark=spark
    )
    assert code == 0, said
    recovered = layer_lake.all_rows()
    layer_lake.build(full_refresh=True)
    assert_same(recovered, layer_lake.all_rows())
