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

from benchmarks.against_bare import take_turns
from benchmarks.bench import Bench
from benchmarks.results import Bar, at_least, at_most
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client, list_bounds
from headrace.sources.generate import events_of
from headrace.sources.generators import Rate
from headrace.sources.signatures import SignedRequest, sign
from headrace.spec import load_pipeline
from headrace.spec.model.pipeline import Stream

SHARE = 0.5
_SECRET = "the secret of a benchmark"
_PATH = "/webhooks/stripe"


def compare_webhooks(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return signed posts per second and the slowest hundredth of both sides, and if Kafka has what was acknowledged."""
    folder = (bench.folder / "webhooks").resolve()
    folder.mkdir()
    environ = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": bench.bootstrap_servers,
        "HEADRACE_HOME": str(folder / ".headrace"),
        "STRIPE_WEBHOOK_SECRET": _SECRET,
    }
    post = signed_charges()
    turns = take_turns(bench, "commerce", folder=folder, environ=environ, headrace=post, bare=post)
    lost = abs(_count_messages(bench.bootstrap_servers) - len(turns.acknowledged))
    return turns.rows(), (
        at_least(SHARE, turns.share, name="signed posts/s against a handler that only reads the body"),
        at_most(0, lost, name="difference of acknowledged webhooks and messages in Kafka"),
    )


def signed_charges() -> Callable[[str], bytes]:
    """Return how a name becomes a whole request: a charge that has it as its id, signed."""
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
    return sum(end - first for first, end in list_bounds(admin_client(KafkaServers(servers)), partitions).values())


def _charges() -> Stream:
    streams = load_pipeline("commerce", environ={}, folder=Path.cwd()).streams
    return next(stream for stream in streams if stream.name == "stripe_charges")
