"""Signed webhooks: `/webhooks/stripe` of the commerce pipeline against a FastAPI handler that only reads the body, in turns.

There are 64 connections. Every request is a charge as Stripe sends it, with an id of its own and a signature of its own; at the
end Kafka must have exactly as many of them as were acknowledged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from benchmarks.bench import Bench
from benchmarks.load import Load, drive
from benchmarks.results import Bar, at_least, at_most
from benchmarks.servers import running_server
from headrace.services.ports import find_free_port
from headrace.services.topics import admin_client, list_bounds
from headrace.sources.generate import events_of
from headrace.sources.generators import Rate
from headrace.sources.signatures import SignedRequest, sign
from headrace.spec import load_pipeline
from headrace.spec.pipeline import Stream

CONNECTIONS = 64
TURNS = 3
SHARE = 0.5
SIDES = ("headrace", "bare")
_SECONDS = 10.0
_SECRET = "the secret of a benchmark"
_PATH = "/webhooks/stripe"


def compare_webhooks(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Gives back signed posts per second and the slowest hundredth of both sides, and if Kafka has what was acknowledged."""
    seconds = _SECONDS / 5 if bench.quick else _SECONDS
    folder = (bench.folder / "webhooks").resolve()
    folder.mkdir()
    home = str(folder / ".headrace")
    environ = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": bench.bootstrap_servers,
        "HEADRACE_HOME": home,
        "STRIPE_WEBHOOK_SECRET": _SECRET,
    }
    post = signed_charges()
    turns: dict[str, list[Load]] = {side: [] for side in SIDES}
    ports = {side: find_free_port() for side in SIDES}
    receive = ("headrace.cli", "receive", "commerce", "--port", str(ports["headrace"]))
    with (
        running_server(folder, environ, *receive, port=ports["headrace"]),
        running_server(folder, environ, "benchmarks.bare", str(ports["bare"]), port=ports["bare"]),
    ):
        for number in range(TURNS + 1):
            for side in SIDES:
                load = drive(ports[side], post, prefix=f"{side}-{number}", connections=CONNECTIONS, seconds=seconds)
                turns[side].append(load)
                bench.say(f"Webhooks: {side} {load.per_second:,.0f} signed posts/s, p99 {load.p99_ms:.1f} ms")
    acknowledged = sum(len(load.acknowledged) for load in turns["headrace"])
    in_topic = _count_messages(bench.bootstrap_servers)
    measured = {side: loads[1:] for side, loads in turns.items()}  # the first turn warms up
    rows: list[dict[str, object]] = [
        {
            "side": side,
            "posts_per_second": round(median(load.per_second for load in loads)),
            "p99_ms": round(median(load.p99_ms for load in loads), 1),
            "refused": sum(load.refused for load in loads),
            "turns": [{"posts_per_second": round(load.per_second), "p99_ms": round(load.p99_ms, 1)} for load in loads],
        }
        for side, loads in measured.items()
    ]
    share = median(load.per_second for load in measured["headrace"]) / median(load.per_second for load in measured["bare"])
    return rows, (
        at_least(SHARE, share, name="signed posts/s against a handler that only reads the body"),
        at_most(0, abs(in_topic - acknowledged), name="difference of acknowledged webhooks and messages in Kafka"),
    )


def signed_charges() -> Callable[[str], bytes]:
    """Gives back how a name becomes a whole request: a charge that has it as its id, signed."""
    event = next(events_of(_charges(), Rate(seed=1)))["body"]
    assert isinstance(event, dict)

    def request(name: str) -> bytes:
        body = json.dumps({**event, "id": name}).encode()
        signed = SignedRequest("POST", f"http://bench{_PATH}", {}, body)
        (signature,) = sign(signed, "stripe", secret=_SECRET, now=datetime.now(timezone.utc)).values()
        head = f"POST {_PATH} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\nStripe-Signature: {signature}\r\n\r\n"
        return head.encode() + body

    return request


def _count_messages(servers: str) -> int:
    stream = _charges()
    partitions = [(stream.topic, partition) for partition in range(stream.partitions)]
    return sum(end - first for first, end in list_bounds(admin_client(servers), partitions).values())


def _charges() -> Stream:
    streams = load_pipeline("commerce", environ={}, folder=Path.cwd()).streams
    return next(stream for stream in streams if stream.name == "stripe_charges")
