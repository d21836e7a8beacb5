"""The servers that are attacked, each as a process: `python -m tests.programs.hostile.servers SURFACE PORT FOLDER [DSN]`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from fastapi import FastAPI

from headrace.http.server import make_server, run_server
from headrace.serving.web.app import make_app
from headrace.serving.web.guard import Lock
from headrace.sources.receiving import app_with
from headrace.sources.seeding import seeding_app
from headrace.sources.webhooks import STANDARD
from headrace.spec.model.pipeline import Capture, Pipeline, Seeder
from tests.serving.played_topics import PlayedTopics
from tests.serving.shop_lake import ShopLake
from tests.support.folders import write_files
from tests.support.webhook_server import ForgettingProducer
from tests.support.webhooks import SECRETS, commerce

SERVE_TOKEN = "the token of the attacked server"
ROWS = 1_000
SEEDER = """\
def seed(connection, random, until, rows: int = 1, replace: bool = False) -> dict[str, int] | None:
    return {"things": rows} if replace else None

def act(connection, random, now) -> str:
    return connection.execute("SELECT 'looked'").fetchone()[0]

def change_schema(connection) -> str | None:
    return None
"""


def serving(folder: Path, _: str) -> FastAPI:
    """Return the control room of a small lake; its topics are made up, so that nothing depends on a broker."""
    lake = ShopLake(folder)
    lake.land([f"e{number}" for number in range(ROWS)], bad=["not JSON"])
    lake.build(["e1"], failed=1)
    context = replace(lake.context, topics=PlayedTopics([b"{}"] * 20))
    return make_app(context, Lock(SERVE_TOKEN, local=False))


def receiving(folder: Path, _: str) -> FastAPI:
    """Return the commerce pipeline's receiver; its producer acknowledges at once."""
    return app_with(ForgettingProducer(), commerce(), environ=SECRETS, limits=STANDARD)


def seeding(folder: Path, dsn: str) -> FastAPI:
    """Return a seeder on a real Postgres, whose functions do as little as they can."""
    write_files(folder, {"seeder.py": SEEDER})
    capture = Capture("mine", folder, seeder=Seeder(folder / "seeder.py", 8000))
    return seeding_app(Pipeline("mine", "a test", folder, (), capture=capture), dsn=dsn)


APPS: Mapping[str, Callable[[Path, str], FastAPI]] = {"serve": serving, "receive": receiving, "seed": seeding}


if __name__ == "__main__":
    name, port, path, *rest = sys.argv[1:]
    run_server(make_server(APPS[name](Path(path), rest[0] if rest else ""), port=int(port)))
