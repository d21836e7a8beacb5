"""Every webhook that was answered with 200 is in its raw table exactly once, whoever is killed while they come."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.servers.ports import find_free_port
from headrace.settings import load_settings
from headrace.sources.signatures import SignedRequest, sign
from tests.support.application import Application
from tests.support.lake import Lake, check_verified
from tests.support.ports import with_own_ports
from tests.support.waiting import wait_until
from tests.support.webhooks import SCHEMES, SECRETS, commerce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.long]

CONNECTIONS, ACKNOWLEDGED, LIST = 8, 300, 3


@dataclass
class Load:
    """Webhooks that are sent once each: the ids answered with 200, and the answers of the others."""

    port: int
    stop: Event = field(default_factory=Event)
    numbers: Iterator[int] = field(default_factory=count)
    acknowledged: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    async def send_all(self) -> None:
        await asyncio.gather(*(self._send_one_by_one() for _ in range(CONNECTIONS)))

    def wait_for_more(self, seconds: float = 60.0) -> None:
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before + ACKNOWLEDGED, what="more to be acknowledged", seconds=seconds)

    async def _send_one_by_one(self) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self.stop.is_set():
            ids, request = self._next()
            self.sent += ids
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", self.port)
                status = await asyncio.wait_for(_ask(*connection, request), 30)
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                connection, status = None, type(error).__name__
                await asyncio.sleep(0.1)
            if status == "200":
                self.acknowledged += ids
            else:
                self.refused[status] += 1

    def _next(self) -> tuple[list[str], bytes]:
        """Return a charge of Stripe, or a list of HubSpot's contacts, and the ids of its events."""
        number = next(self.numbers)
        if number % 4:
            about = {"id": f"ch_{number}", "object": "charge", "amount": number}
            event = {"id": f"evt_{number}", "type": "charge.succeeded", "created": 1_767_225_600, "data": {"object": about}}
            return [f"evt_{number}"], self._signed("stripe", event)
        ids = [str(number * LIST + at) for at in range(LIST)]
        events = [{"eventId": int(event_id), "subscriptionType": "contact.creation", "objectId": number} for event_id in ids]
        return ids, self._signed("hubspot", events)

    def _signed(self, provider: str, content: object) -> bytes:
        body, host = json.dumps(content).encode(), f"127.0.0.1:{self.port}"
        request = SignedRequest("POST", f"http://{host}/webhooks/{provider}", {}, body)
        secret = SECRETS[f"{provider.upper()}_WEBHOOK_SECRET"]
        headers = sign(request, SCHEMES[provider], secret=secret, now=datetime.now(timezone.utc))
        lines = [f"POST /webhooks/{provider} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode() + body


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> str:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(line.split(": ")[1] for line in head.splitlines() if line.startswith("content-length"))
    await reader.readexactly(int(length))
    return head.split()[1]


@contextmanager
def webhooks_keep_coming(load: Load) -> Iterator[None]:
    thread = Thread(target=lambda: asyncio.run(load.send_all()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        load.stop.set()
        thread.join(60)
        assert not thread.is_alive()


def start_api(lake: Lake, port: int) -> Application:
    api = lake.start("receive", "commerce", "--port", str(port), **SECRETS)
    api.wait_to_say("Receiving on", seconds=60)
    return api


def test_api_and_the_broker_are_killed_under_load(
    make_lake: Callable[[str], Lake], spark: SparkSession, tmp_path: Path
) -> None:
    own = with_own_ports(load_settings(flags={}, environ={}, folder=tmp_path / "broker"))
    broker = start_kafka(own, detached=True, report=lambda sentence: None)
    lake = make_lake(broker.bootstrap_servers)
    load = Load(find_free_port())
    try:
        api = start_api(lake, load.port)
        with webhooks_keep_coming(load):
            load.wait_for_more()
            api.signal(signal.SIGKILL)
            assert api.wait() == -signal.SIGKILL
            api = start_api(lake, load.port)
            load.wait_for_more()
            os.kill(broker.pid, signal.SIGKILL)
            broker = start_kafka(own, detached=True, report=lambda sentence: None)
            load.wait_for_more()
        pipeline = commerce()
        lake.land(spark, pipeline)
        check_verified(lake, pipeline)
        landed = Counter(
            row["_event_id"]
            for table in ("stripe_charges", "hubspot_contacts")
            for row in lake.rows(f"raw.{table}", "_event_id")
        )
        assert load.refused, "nobody noticed that somebody was killed"
        assert [event_id for event_id in load.acknowledged if landed[event_id] != 1] == []
        assert [event_id for event_id in load.sent if landed[event_id] > 1] == []
        assert set(landed) <= set(load.sent)
        said = "".join(application.said() for application in lake.applications)
        assert not any(secret in said for secret in SECRETS.values())
    finally:
        for application in lake.applications:
            application.end()
        stop_kafka(own)
