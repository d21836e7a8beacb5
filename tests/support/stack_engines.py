"""Every engine reads the same rows of every table of a stack: through its catalog and with its keys, as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from headrace.servers.trino import TrinoService, running_trino, stop_trino
from headrace.serving.sql.engines.names import Engine
from headrace.settings import Settings
from tests.support.engine_rows import change_by_hand, check_engines, check_trino, read_with_spark
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASKED = "SELECT count(*) AS n FROM lineage.events"


def check_engines_agree(lake: Lake, spark: SparkSession) -> None:
    """Hold what every engine reads against what Spark reads, before and after rows were deleted where they are; and asks each
    but Spark, whose cluster has no place for two, by the command."""
    settings = lake.settings()
    lake.run("up", "trino")
    try:
        server = running_trino(settings)
        assert server is not None
        for change in (lambda lake, spark: None, change_by_hand):
            change(lake, spark)
            truth = read_with_spark(lake, spark)
            check_engines(lake.catalog, truth)
            check_trino(server.url, lake.catalog, truth)
        wanted = [{"n": truth["lineage.events"].num_rows}]
        for engine in Engine:
            if engine != Engine.spark:
                assert json.loads(lake.run("query", ASKED, "--json", "--engine", engine.value)) == wanted, engine
        check_no_key_is_shown(settings, server)
    finally:
        stop_trino(settings)
    print(f"every engine reads the same rows of {len(truth)} tables")


def check_no_key_is_shown(settings: Settings, server: TrinoService) -> None:
    """Look for the object store's keys in Trino's files, its log and its command line."""
    files = [path for path in (settings.home / "trino").rglob("*") if path.is_file() and not path.is_symlink()]
    said = "".join(path.read_text(encoding="utf-8", errors="replace") for path in (*files, Path(server.log)))
    said += " ".join(psutil.Process(server.pid).cmdline())
    keys = (settings.s3_access_key_id, settings.s3_secret_access_key)
    assert not [key for key in keys if key is None or key in said]
