"""A shop that is captured while its servers are killed: `make captured MINUTES=5` plays longer than the tests do."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.http.client import ask, is_fine
from headrace.servers.connect import running_connect, stop_connect
from headrace.servers.kafka import running_kafka, stop_kafka
from headrace.servers.ports import find_free_port
from headrace.servers.postgres import running_postgres, stop_postgres
from headrace.servers.registry import stop_registry
from headrace.settings import Settings, load_settings
from tests.support.application import Application, start_headrace
from tests.support.waiting import wait_until

PORTS = ("KAFKA", "POSTGRES", "CONNECT", "REGISTRY")
PARTS = ("connect", "postgres", "broker", "application")
START_SECONDS = 240.0
COME_BACK_SECONDS = 120.0
SERVED = "serve.storefront.revenue_by_day"


@dataclass
class CapturedShop:
    """Storefront in a folder of its own: the application that captures and builds it, and the seeder that plays with it."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.environ = {f"HEADRACE_{name}_PORT": str(find_free_port()) for name in PORTS}
        self.environ["HEADRACE_HOME"] = str(self.folder / ".headrace")
        self._port = find_free_port()
        self._address = f"http://127.0.0.1:{self._port}"
        self.application: Application | None = None
        self.seeder: Application | None = None

    @property
    def settings(self) -> Settings:
        return load_settings(flags={}, environ=self.environ, folder=self.folder)

    def open(self, *, rate: float, seed: int, **sizes: int) -> dict[str, int]:
        """Fill the shop, and has it captured while customers play in it, and return how many rows each table had before."""
        self.seeder = start_headrace(
            *("seed", "serve", "storefront"), "--port", str(self._port), environ=self.environ, folder=self.folder
        )
        wait_until(lambda: is_fine(f"{self._address}/health", timeout=5), what="the seeder to answer", seconds=START_SECONDS)
        filled = self.post("seed/full", **sizes)
        self.post("traffic/start", rate=rate, seed=seed)
        self.start()
        wait_until(lambda: f"{SERVED}  build" in self.said(), what=f"{SERVED} to be built", seconds=START_SECONDS)
        return dict(filled["rows"])

    def start(self) -> None:
        self.application = start_headrace("run", "storefront", environ=self.environ, folder=self.folder)

    def said(self) -> str:
        assert self.application is not None
        said = self.application.said()
        assert self.application.process.poll() is None, f"the application ended:\n{said[-3_000:]}"
        return said

    def post(self, path: str, **query: float) -> dict[str, Any]:
        """Return what the seeder answers."""
        values = "&".join(f"{name}={value}" for name, value in query.items())
        answer = ask(f"{self._address}/{path}?{values}", method="POST", timeout=START_SECONDS)
        assert answer.is_fine, answer
        return dict(answer.body)

    def committed(self) -> int:
        """Return how many transactions the traffic has committed so far."""
        return int(ask(f"{self._address}/traffic/status").body["committed"])

    def kill(self, part: str) -> None:
        """Send SIGKILL to a part, and wait until it is back."""
        self.killed[part] += 1
        if part == "application":
            assert self.application is not None
            self.application.signal(signal.SIGKILL)
            self.application.end()
            self.start()
            wait_until(lambda: "  build " in self.said(), what="the application to build again", seconds=START_SECONDS)
            return
        find = {"connect": running_connect, "postgres": running_postgres, "broker": running_kafka}[part]
        before = find(self.settings)
        assert before is not None, part
        os.kill(before.pid, signal.SIGKILL)

        def is_back() -> bool:
            self.said()
            now = find(self.settings)
            return now is not None and now.pid != before.pid

        wait_until(is_back, what=f"{part} to be back", seconds=COME_BACK_SECONDS)

    def verify(self) -> list[dict[str, Any]]:
        """Return what `headrace verify` finds, stream by stream and table by table."""
        done = start_headrace("verify", "storefront", "--json", environ=self.environ, folder=self.folder)
        done.wait(seconds=600)
        try:
            return list(json.loads(done.said()))
        except ValueError:
            raise AssertionError(f"headrace verify could not compare:\n{done.said()}\n{self.said()[-3_000:]}") from None

    def close(self) -> None:
        for process in (self.seeder, self.application):
            if process is not None:
                process.end()
        for stop in (stop_connect, stop_registry, stop_kafka, stop_postgres):
            stop(self.settings, report=lambda sentence: None)


def hold(minutes: float, *, folder: Path, seed: int) -> bool:
    """Return whether the lake equals Postgres in every row and column after minutes of traffic, kills and schema changes."""
    chance = random.Random(seed)
    shop = CapturedShop(folder)
    try:
        print(f"filled: {shop.open(rate=60, seed=seed)}", flush=True)
        ends, changes = time.monotonic() + minutes * 60, 0
        while time.monotonic() < ends:
            time.sleep(chance.uniform(5.0, 20.0))
            shop.kill(chance.choice(PARTS))
            if changes < 5 and chance.random() < 0.5:
                print(shop.post("schema/change")["change"], flush=True)
                changes += 1
        print(f"traffic: {shop.post('traffic/stop')}\nkilled: {dict(shop.killed)}", flush=True)
        verified = shop.verify()
    finally:
        shop.close()
    for check in verified:
        print(json.dumps(check))
    return all(check["holds"] for check in verified)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        holds = hold(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0, folder=Path(scratch), seed=int(time.time()))
    print("the lake is the database" if holds else "THE LAKE IS NOT THE DATABASE: see above")
    sys.exit(0 if holds else 1)
