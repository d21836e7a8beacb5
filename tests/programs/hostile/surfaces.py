"""What is sent to each server: generated requests, long and compressed bodies, and the requests of a well-behaved client."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import quote

from tests.programs.hostile import webhook_requests
from tests.programs.hostile.client import CHUNKED, LIE
from tests.programs.hostile.servers import SERVE_TOKEN

BOMB = gzip.compress(bytes(20_000_000))
MEGABYTE = b"x" * 1_048_576
BEARER = f"authorization: Bearer {SERVE_TOKEN}\r\n".encode()
HEAVY = (
    "SELECT repeat('ab', 5000000) FROM range(100000)",
    "SELECT list(repeat('ab', 5000000)) FROM range(100000)",
    "SELECT a.range, b.range, repeat('x', 100) AS t FROM range(100000) a, range(100000) b ORDER BY t, b.range DESC, a.range",
    "SELECT count(*) FROM range(9000000) a, range(9000000) b WHERE a.range ^ b.range = 3",
)
_SQL = (
    "SELECT count(*) FROM raw.charges",
    "SELECT * FROM raw.charges LIMIT 5",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "PRAGMA import_database('/etc')",
    "COPY raw.charges TO '/tmp/x'",
    "ATTACH '/tmp/x.db'",
    "SELECT getenv('HOME')",
    "SELECT 1; SELECT 2",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + "+".join(["1"] * 5_000),
    "SELECT '\x00\ud83d' FROM raw.charges",
    "SELECT sleep_ms(60000)",
    "WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 1 FROM t) SELECT count(*) FROM t LIMIT 1",
)
_PATHS = (
    "/api/flow",
    "/api/figures",
    "/api/tables/raw.charges",
    "/api/tables/raw.charges/files",
    "/api/tables/raw.charges/sample",
    "/api/tables/raw.charges/refused",
    "/api/topics",
    "/api/topics/shop_charges",
    "/metrics",
    "/health",
    "/login",
    "/",
    "/sql",
    "/static/room.js",
    "/openapi.json",
)
_SEED_PATHS = ("/seed/full", "/traffic/start", "/traffic/stop", "/traffic/status", "/schema/change", "/health", "/docs")
_QUERIES = (
    "",
    "?rows=1&replace=true",
    "?rows=-1",
    "?rate=1e400",
    "?rate=5",
    "?seed=" + "9" * 400,
    "?rows=%00",
    "?a=%ff",
    "?rate=nan",
)


def _tail(random: Random) -> str:
    odd = quote(bytes(random.randrange(256) for _ in range(random.randrange(1, 40))))
    return random.choice(("", "", "", "?next=//evil.example", "/../../etc/passwd", "%2e%2e/%2e%2e", f"/{odd}", f"?x={odd}"))


def _odd_headers(random: Random) -> bytes:
    return random.choice(
        (
            b"",
            b"",
            b"",
            b"",
            b"accept: text/html\r\n",
            b"cookie: headrace=" + b"x" * 500 + b"\r\n",
            b"cookie: \xff\xfe;;=;\r\n",
            b"x-long: " + b"y" * 60_000 + b"\r\n",
            b"".join(b"x-%d: y\r\n" % number for number in range(150)),
            b"bad name: y\r\n",
            b"range: bytes=0-,1-,2-\r\n",
            b"if-modified-since: \xff\r\n",
            b"upgrade: websocket\r\nconnection: upgrade\r\n",
            b"content-encoding: gzip\r\n",
            b"expect: 100-continue\r\n",
            b"content-type: application/x-www-form-urlencoded\r\n",
            b"content-type: multipart/form-data; boundary=" + b"-" * 200 + b"\r\n",
        )
    )


def _request(random: Random, method: str, target: str, headers: bytes, body: bytes) -> bytes:
    length = str(len(body)).encode()
    if random.random() < 0.05:
        length, body = random.choice((b"-1", b"9" * 40, b"1e3", b"", str(len(body) + 99).encode())), body + LIE
    framing = b"content-length: " + length + b"\r\n"
    if random.random() < 0.03:
        framing = CHUNKED + b": chunked\r\n"
        body = random.choice((b"zz\r\nzz\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffff\r\n", b""))
    first = f"{method} {target} HTTP/1.1\r\n".encode("utf-8", errors="surrogatepass")
    return first + b"host: localhost\r\nconnection: close\r\n" + headers + framing + b"\r\n" + body


def serve_request(random: Random) -> bytes:
    """Return a request to the control room; most have the token, so that what is behind it is asked."""
    headers = random.choice((BEARER,) * 8 + (b"", b"authorization: Bearer wrong\r\n")) + _odd_headers(random)
    if random.random() < 0.15:
        sql: object = random.choice((*_SQL, random.randbytes(50).decode("latin-1"), None, 7, ["SELECT 1"], {"a": "b"}))
        body = json.dumps({"sql": sql}).encode()
        body = random.choice((body,) * 6 + (body[:-3], b"[" * 50_000, b"\xff" * 100, b""))
        return _request(random, "POST", "/api/query", headers + b"content-type: application/json\r\n", body)
    if random.random() < 0.03:
        body = random.choice((b"token=wrong", b"token=" + b"x" * 10_000, b"=&=&" * 500, random.randbytes(200)))
        return _request(random, "POST", "/login", headers, body)
    method = random.choice(("GET",) * 12 + ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"))
    return _request(random, method, random.choice(_PATHS) + _tail(random), headers, b"")


def seed_request(random: Random) -> bytes:
    method = random.choice(("POST",) * 6 + ("GET",) * 6 + ("PUT", "DELETE", "OPTIONS"))
    target = random.choice(_SEED_PATHS) + random.choice((*_QUERIES, _tail(random)))
    body = random.choice((b"", b"", b"{}", b"[" * 50_000, random.randbytes(200)))
    return _request(random, method, target, _odd_headers(random), body)


def _post(target: str, headers: bytes, body: bytes) -> bytes:
    first = f"POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n".encode()
    return first + headers + b"\r\n" + body


def _get(target: str, headers: bytes = b"") -> bytes:
    return f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n".encode() + headers + b"\r\n"


def _long_bodies(target: str, headers: bytes) -> tuple[bytes, ...]:
    packed = headers + b"content-encoding: gzip\r\ncontent-type: application/json\r\n"
    return (
        *(_post(target, headers, MEGABYTE),) * 8,
        _post(target, headers, MEGABYTE * 3),
        _post(target, packed, BOMB),
    )


@dataclass(frozen=True)
class Surface:
    """A server: what attacks it, and what a well-behaved client asks meanwhile. `half_body` is a request without its end."""

    name: str
    generate: Callable[[Random], bytes]
    long_bodies: Sequence[bytes]
    half_body: bytes
    probes: Callable[[], Sequence[bytes]]
    heavy: Sequence[bytes] = ()


_WRONG = b"stripe-signature: t=1,v1=0\r\n"
SURFACES = (
    Surface(
        "serve",
        serve_request,
        (*_long_bodies("/api/query", BEARER), *_long_bodies("/api/query", b""), *_long_bodies("/login", b"")),
        _post("/api/query", BEARER + b"content-type: application/json\r\n", MEGABYTE[:100_000])[:2_000],
        lambda: (_get("/health"), _get("/api/flow", BEARER), _get("/api/tables/raw.charges", BEARER)),
        tuple(
            _post("/api/query", BEARER + b"content-type: application/json\r\n", json.dumps({"sql": sql}).encode())
            for sql in HEAVY
        ),
    ),
    Surface(
        "receive",
        webhook_requests.request_of,
        (*_long_bodies("/webhooks/stripe", b""), *_long_bodies("/webhooks/stripe", _WRONG)),
        _post("/webhooks/stripe", _WRONG, MEGABYTE)[:500_000],
        lambda: (_get("/health"), webhook_requests.good_request()),
    ),
    Surface(
        "seed",
        seed_request,
        _long_bodies("/seed/full", b""),
        _post("/seed/full", b"", b"x" * 60_000)[:2_000],
        lambda: (_get("/health"), _get("/traffic/status")),
    ),
)
