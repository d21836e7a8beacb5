"""Webhook endpoints refuse hostile requests, and their memory does not grow.

`make hostile` sends many more, to every server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psutil
import pytest

from headrace.servers.ports import find_free_port, is_free
from tests.programs.hostile.client import ask, ask_all
from tests.programs.hostile.webhook_requests import good_request, request_of
from tests.support.waiting import wait_until
from tests.support.webhooks import SECRETS

pytestmark = pytest.mark.services

REQUESTS, WARM_UP = 10_000, 2_000
GROWTH_BYTES = 24 * 1024 * 1024
"""The noise of the allocator is below this; a process that kept one body in a hundred would be far above."""


@contextmanager
def running_server(log: Path) -> Iterator[tuple[int, psutil.Process]]:
    port = find_free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.webhook_server", str(port)], stdout=output, stderr=output
        )
    try:
        wait_until(lambda: not is_free(port), what="the server", seconds=30)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def test_webhook_server_survives_hostile_requests(tmp_path: Path) -> None:
    random = Random(20260301)
    log = tmp_path / "server.log"
    with running_server(log) as (port, process):
        codes = asyncio.run(ask_all(port, (request_of(random) for _ in range(WARM_UP))))
        before = process.memory_info().rss
        codes += asyncio.run(ask_all(port, (request_of(random) for _ in range(REQUESTS - WARM_UP))))
        after, files = process.memory_info().rss, process.num_fds()
        assert asyncio.run(ask(port, good_request())) == 200, "it still takes what is right"
    assert sum(codes.values()) == REQUESTS
    assert [code for code in codes if code >= 500] == [], codes
    assert set(codes) >= {200, 202, 400, 401, 405, 413}, codes
    assert codes[0] < REQUESTS / 10, codes
    assert after - before < GROWTH_BYTES, (before, after)
    assert files < 64
    said = log.read_text(errors="replace")
    assert "Traceback" not in said, said[-3000:]
    assert not any(secret in said for secret in SECRETS.values())
