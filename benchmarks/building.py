"""Build all tables of the payments lake in a folder for each line on standard input, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.payments_lake import build_all
from headrace.sessions.building import open_lake
from headrace.sessions.shared_spark import spark_session
from headrace.settings import load_settings
from headrace.spec import load_pipeline


def build_on_request(folder: Path) -> None:
    settings = load_settings(flags={}, environ={}, folder=folder)
    pipeline = load_pipeline("payments", environ={}, folder=folder)
    with spark_session(settings, report=lambda _: None) as spark:
        lake = open_lake(settings, pipeline, spark)
        for _ in sys.stdin:
            build_all(lake)
            print("built", flush=True)


if __name__ == "__main__":
    build_on_request(Path(sys.argv[1]))
