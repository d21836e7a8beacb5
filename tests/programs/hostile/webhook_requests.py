"""Requests to a webhook that nobody sends by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from random import Random

from headrace.sources.signatures import SignedRequest, sign
from headrace.sources.webhooks import STANDARD
from tests.programs.hostile.client import CHUNKED, LIE
from tests.support.webhooks import SCHEMES, SECRETS

PROVIDERS = tuple(SCHEMES)
GOOD = json.dumps({"id": "evt_1", "type": "charge.succeeded", "data": {"object": {"object": "charge", "id": "ch_1"}}}).encode()

ODD = (b"", b" ", b"=", b",", b"\xff\xfe", b"t=,v1=", b"t=9" * 500, b"v1=," * 3_000, b"t=-1,v1=0", b"\xd9\xa7")
TARGETS = (*(b"",) * 6, b"?a=%ff", b"?" + b"a" * 5_000, b"/../x", b"%00", b" x")
Header = tuple[bytes, bytes]


def body_of(random: Random) -> bytes:
    """Return something that is sent instead of JSON, or JSON that is made to do harm."""
    depth = random.choice((10, 500, 1_100, 50_000))
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: GOOD,
        lambda: GOOD[: random.randrange(len(GOOD))],
        lambda: random.randbytes(random.randrange(300)),
        lambda: GOOD.decode().encode(random.choice(("utf-16", "utf-32", "utf-8-sig", "cp500"))),
        lambda: b'{"id":' * depth + b"1" + b"}" * depth,
        lambda: b"[" * depth + b"]" * depth,
        lambda: b"[" * depth,
        lambda: b'{"a":"' + b"\\u0000" * random.randrange(2_000) + b'"}',
        lambda: b'{"id":' + b"9" * random.choice((30, 400, 100_000)) + b"}",
        lambda: b'{"id":1e' + b"9" * 400 + b"}",
        lambda: json.dumps({str(number): number for number in range(random.randrange(2_000))}).encode(),
        lambda: json.dumps([{"eventId": number} for number in range(random.randrange(1_500))]).encode(),
        lambda: b'{"id":"\xed\xa0\x80"}',
        lambda: b'{"type":{"type":[]},"data":[],"id":{"id":null},"subscriptionType":7,"eventId":[[]],"objectId":{}}',
        lambda: b"x" * random.choice((STANDARD.max_body_bytes, STANDARD.max_body_bytes + 1, 3_000_000)),
    )
    return random.choices(kinds, [20] * (len(kinds) - 1) + [1])[0]()


def headers_of(random: Random, provider: str, body: bytes) -> list[Header]:
    """Return headers: often with a right signature, so that what is behind it is asked too, else with tricks."""
    request = SignedRequest("POST", f"http://x/webhooks/{provider}", {}, body)
    secret = SECRETS[f"{provider.upper()}_WEBHOOK_SECRET"]
    right = sign(request, SCHEMES[provider], secret=secret, now=datetime.now(timezone.utc))
    headers = [(b"host", b"x"), *((name.encode(), value.encode()) for name, value in right.items())]
    odd = random.choice(
        (b"", b" ", b"=", b",", b"\xff\xfe", b"t=,v1=", b"t=9" * 500, b"v1=," * 3_000, b"t=-1,v1=0", b"\xd9\xa7")
    )
    bad = [(name, odd) for name, _ in headers]
    tricks: tuple[list[Header], ...] = (
        headers,
        headers,
        headers,
        headers[:1],
        bad,
        bad + headers,
        headers + bad,
        [*headers, (b"x-shopify-topic", odd), (b"x-shopify-webhook-id", odd), (b"content-type", odd)],
        [*headers, (b"x-shopify-topic", b"orders/create"), (b"content-encoding", b"gzip"), (b"expect", b"100-continue")],
        [*headers, (b"x-forwarded-host", b"evil.example"), (b"x-forwarded-proto", odd)],
        [*headers, *((b"x-%d" % number, b"y") for number in range(200))],
        [*headers, (b"x-long", b"y" * 100_000)],
        [*headers, (CHUNKED, b"chunked")],
        [*headers, (b"content-length", b"1")],
        [*headers, (b"bad name", b"y")],
    )
    return random.choice(tricks)


def request_of(random: Random) -> bytes:
    """Return a whole request, or one whose length is a lie."""
    provider, body = random.choice(PROVIDERS), body_of(random)
    method = random.choice((b"POST",) * 30 + (b"GET", b"PUT", b"DELETE", b"P\xffST"))
    target = b"/webhooks/" + provider.encode() + random.choice(TARGETS)
    length = str(len(body))
    if random.random() < 0.1:
        length = random.choice(("-1", "9" * 40, "1e3", "", str(len(body) // 2), str(len(body) + 99)))
        body += LIE
    lines = [b"%s %s HTTP/1.1" % (method, target), b"content-length: " + length.encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in headers_of(random, provider, body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def good_request() -> bytes:
    """Return a request that is answered with 200."""
    request = SignedRequest("POST", "http://x/webhooks/stripe", {}, GOOD)
    signed = sign(request, "stripe", secret=SECRETS["STRIPE_WEBHOOK_SECRET"], now=datetime.now(timezone.utc))
    headers = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in signed.items())
    return b"POST /webhooks/stripe HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n%s\r\n%s" % (
        len(GOOD),
        headers,
        GOOD,
    )
