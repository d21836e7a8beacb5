"""Makes the lake of version 0.1 that tests open and continue: README.md says how to run it.

It runs in a work tree of 0.1, so it imports only what that has.
"""

# mypy: ignore-errors
# ruff: noqa: I001

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from pathlib import Path

from headrace.version import __version__
from headrace.runs.building import build, open_lake
from headrace.services.jars import resolve_jars
from headrace.services.java import find_java_home
from headrace.services.kafka import start_kafka, stop_kafka
from headrace.services.spark import start_spark
from headrace.settings import load_settings
from tests.lake import Lake
from tests.topics import make_topic, produce
from tests.upgrade.kept_events import TOPIC, message_rounds
from tests.upgrade.old_lake import ARCHIVE, FOLDER, PIPELINES, ROUNDS


def make_lake() -> None:
    """Land and build a few rounds in `FOLDER`, and archive its catalog and warehouse."""
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists: another run uses it, or left it behind. Remove it first.")
    shutil.copytree(PIPELINES, FOLDER / "pipelines")
    with tempfile.TemporaryDirectory() as scratch:
        settings = load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=Path(scratch))
        servers = start_kafka(settings, detached=False, report=print).bootstrap_servers
        java_home = find_java_home(os.environ, cache=settings.home / "java")
        spark = start_spark(settings, java_home=java_home, jars=resolve_jars("spark", report=print))
        try:
            lake = Lake(FOLDER, servers, TOPIC)
            make_topic(servers, TOPIC)
            for messages in message_rounds(ROUNDS):
                produce(servers, TOPIC, messages)
                pipeline = lake.pipeline("kept")
                lake.land(spark, pipeline)
                for outcome in build(open_lake(lake.settings(), pipeline, spark)):
                    if outcome.error:
                        raise outcome.error
        finally:
            spark.stop()
            stop_kafka(settings)
    for database in (FOLDER / ".headrace").rglob("*.db"):
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        archive.add(FOLDER / ".headrace", ".headrace", filter=_to_archive)
    shutil.rmtree(FOLDER)
    print(f"Version {__version__} made {ARCHIVE.name}: {ARCHIVE.stat().st_size:,} bytes")


def _to_archive(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what the lake doesn't need, and who made it."""
    if member.name.split("/")[1:2] not in ([], ["warehouse"], ["catalog.db"]) or member.name.endswith(".crc"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    make_lake()
