"""The commerce pipeline's server without a broker: what it would send is kept, and its requests are signed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from httpx import Response

from headrace.sources.acknowledged import NotAcknowledgedError
from headrace.sources.receiving import app_with
from headrace.sources.signatures import SignedRequest, sign
from headrace.sources.webhooks import STANDARD, Limits
from headrace.spec import load_pipeline
from headrace.spec.model.pipeline import Pipeline, SignatureScheme

HOST = "http://testserver"
SECRETS = {f"{name}_WEBHOOK_SECRET": f"the secret of {name}" for name in ("SHOPIFY", "STRIPE", "HUBSPOT")}
SCHEMES: dict[str, SignatureScheme] = {"shopify": "shopify", "stripe": "stripe", "hubspot": "hubspot-v3"}

OWN_STREAMS = {
    "pipeline.yml": """\
name: mine
about: a test
sources:
  http: {file: sources/take.py, port: 9000}
streams:
  things: {topic: things, format: json, schema: schemas/thing.sql, table: raw.things}
  rest: {topic: rest, format: json, schema: schemas/rest.sql, table: raw.rest}
""",
    "schemas/thing.sql": "number BIGINT, about STRING, _webhook_topic STRING, _event_id STRING, _loaded_at TIMESTAMP",
    "schemas/rest.sql": "payload STRING, _webhook_topic STRING, _event_id STRING, _loaded_at TIMESTAMP",
}
"""A pipeline that can take webhooks, once it has the file that does."""


@lru_cache(maxsize=1)
def commerce() -> Pipeline:
    return load_pipeline("commerce", environ={}, folder=Path.cwd())


@dataclass
class KeptProducer:
    """Acknowledges everything, unless it is away or has no room for more than so many events."""

    is_unavailable: bool = False
    room: int = 1_000_000
    sent: list[tuple[str, bytes, bytes | None]] = field(default_factory=list)

    async def send(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        if self.is_unavailable or len(self.sent) >= self.room:
            raise NotAcknowledgedError("Local: Message timed out")
        self.sent.append((topic, value, key))

    async def is_reachable(self, topic: str) -> bool:
        return not self.is_unavailable

    async def close(self) -> None:
        """Has nothing to wait for."""

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(topic, json.loads(value)) for topic, value, _ in self.sent]


@dataclass
class Shop:
    """A client of the server, and what came of its requests."""

    client: TestClient
    producer: KeptProducer

    def post(
        self,
        provider: str,
        body: object,
        *,
        scheme: SignatureScheme | None = None,
        secret: str | None = None,
        now: datetime | None = None,
        **headers: str,
    ) -> Response:
        """Send a body, which is JSON unless it is bytes, with the signature of its provider."""
        content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        path = f"/webhooks/{provider}"
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        request = SignedRequest("POST", f"{HOST}{path}", given, content)
        moment = now or datetime.now(timezone.utc)
        key = SECRETS[f"{provider.upper()}_WEBHOOK_SECRET"] if secret is None else secret
        signature = sign(request, scheme or SCHEMES[provider], secret=key, now=moment)
        headers = {"content-type": "application/json", **signature, **given}
        answer: Response = self.client.post(path, content=content, headers=headers)
        return answer


@contextmanager
def shop(
    pipeline: Pipeline | None = None, *, environ: Mapping[str, str] = SECRETS, limits: Limits = STANDARD
) -> Iterator[Shop]:
    producer = KeptProducer()
    app = app_with(producer, pipeline or commerce(), environ=environ, limits=limits)
    with TestClient(app, base_url=HOST, raise_server_exceptions=False) as client:
        yield Shop(client, producer)
