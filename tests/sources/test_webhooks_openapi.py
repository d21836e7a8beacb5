"""The webhook server conforms to its OpenAPI schema, checked by schemathesis, with and without signatures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.sources.receiving import app_with
from headrace.sources.signatures import SignedRequest, sign
from headrace.sources.webhooks import STANDARD
from tests.support.webhooks import SCHEMES, SECRETS, KeptProducer, commerce

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is for Python 3.11 and later")

from schemathesis import Case  # noqa: E402
from schemathesis.core.result import Ok  # noqa: E402


@dataclass
class Signing:
    """Signs each webhook request, whatever its content, like a sender that knows the secrets."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        provider = str(scope.get("path", "")).rpartition("/")[2]
        if provider not in SCHEMES or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        uri = f"{scope['scheme']}://{headers.get('host', '')}{scope['path']}"
        request = SignedRequest("POST", uri, headers, body)
        secret = SECRETS[f"{provider.upper()}_WEBHOOK_SECRET"]
        signed = sign(request, SCHEMES[provider], secret=secret, now=datetime.now(timezone.utc))
        added = [(name.encode(), value.encode()) for name, value in signed.items()]

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app({**scope, "headers": [*added, *scope["headers"]]}, again, send)


@pytest.mark.parametrize("is_signed", [True, False])
def test_webhooks_conform_to_their_openapi_schema(is_signed: bool) -> None:
    app: ASGIApp = app_with(KeptProducer(), commerce(), environ=SECRETS, limits=STANDARD)
    tried: set[tuple[str, int]] = set()
    for operation in schemathesis.openapi.from_asgi("/openapi.json", Signing(app) if is_signed else app).get_all_operations():
        assert isinstance(operation, Ok), operation

        @given(case=operation.ok().as_strategy())
        @hypothesis_settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
        def keeps_to_it(case: Case[Any]) -> None:
            answer = case.call()
            case.validate_response(answer)
            tried.add((case.path, answer.status_code))

        keeps_to_it()
    paths = [f"/webhooks/{provider}" for provider in SCHEMES]
    taken = {(path, 202) for path in paths} if is_signed else {(path, 401) for path in paths}
    assert {("/health", 200), ("/ready", 200)} | taken <= tried
    assert {code for _, code in tried} <= ({200, 202, 400} if is_signed else {200, 401})
