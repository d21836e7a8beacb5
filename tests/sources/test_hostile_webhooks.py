"""What a webhook's endpoint does with requests that nobody sends by mistake: it refuses them, and does not grow."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from random import Random

import psutil

from headrace.services.ports import find_free_port, is_free
from headrace.sources.signatures import SignedRequest, sign
from headrace.sources.webhooks import STANDARD
from tests.waiting import wait_until
from tests.webhooks import SCHEMES, SECRETS

REQUESTS, WARM_UP, AT_ONCE = 10_000, 2_000, 16
GROWTH_BYTES = 24 * 1024 * 1024
"""Below it is an allocator's breath; a process that kept one body in a hundred would be far above."""
PROVIDERS = tuple(SCHEMES)
GOOD = json.dumps({"id": "evt_1", "type": "charge.succeeded", "data": {"object": {"object": "charge", "id": "ch_1"}}}).encode()

ODD = (b"", b" ", b"=", b",", b"\xff\xfe", b"t=,v1=", b"t=9" * 500, b"v1=," * 3_000, b"t=-1,v1=0", b"\xd9\xa7")
TARGETS = (*(b"",) * 6, b"?a=%ff", b"?" + b"a" * 5_000, b"/../x", b"%00", b" x")
LIE = b"and there is no more"
"""How a body ends that is shorter than its request says."""

UVICORNS_OWN = "h11._util.LocalProtocolError: can't handle event type Response when role=SERVER"
"""What uvicorn logs where it has refused a body that is no HTTP by itself, and FastAPI then says that there is no such path."""
CHUNKED = b"transfer-encoding"

Header = tuple[bytes, bytes]


def body_of(random: Random) -> bytes:
    """Gives back something that is sent instead of JSON, or JSON that is made to do harm."""
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
    """Gives back headers: often with a right signature, so that what is behind it is asked too, else with tricks."""
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
    """Gives back a whole request, or one whose length is a lie."""
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


async def ask(port: int, request: bytes) -> int:
    """Gives back the status of the answer, or 0 where the connection was ended without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if request.endswith(LIE) or CHUNKED in request:  # the server may wait for more
            writer.write_eof()
        line = await asyncio.wait_for(reader.readline(), 20)
        while line.startswith(b"HTTP/1.1 100"):
            await reader.readline()
            line = await asyncio.wait_for(reader.readline(), 20)
        return int(line.split()[1]) if line else 0
    except (OSError, asyncio.TimeoutError):
        return 0
    finally:
        writer.close()


async def attack(port: int, requests: Iterator[bytes]) -> Counter[int]:
    codes: Counter[int] = Counter()

    async def one_after_another() -> None:
        for request in requests:
            codes[await ask(port, request)] += 1

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    return codes


@contextmanager
def running_server(log: Path) -> Iterator[tuple[int, psutil.Process]]:
    port = find_free_port()
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "tests.webhook_server", str(port)], stdout=output, stderr=output)
    try:
        wait_until(lambda: not is_free(port), what="the server", seconds=30)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def test_ten_thousand_hostile_requests_are_answered_without_a_5xx_and_without_growing(tmp_path: Path) -> None:
    random = Random(20260301)
    log = tmp_path / "server.log"
    with running_server(log) as (port, process):
        codes = asyncio.run(attack(port, (request_of(random) for _ in range(WARM_UP))))
        before = process.memory_info().rss
        codes += asyncio.run(attack(port, (request_of(random) for _ in range(REQUESTS - WARM_UP))))
        after, files = process.memory_info().rss, process.num_fds()
        signed = b"".join(b"%s: %s\r\n" % header for header in headers_of_good())
        good = b"POST /webhooks/stripe HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%s\r\n%s" % (len(GOOD), signed, GOOD)
        assert asyncio.run(ask(port, good)) == 200, "it still takes what is right"
    assert sum(codes.values()) == REQUESTS
    assert [code for code in codes if code >= 500] == [], codes
    assert set(codes) >= {200, 202, 400, 401, 405, 413}, codes
    assert codes[0] < REQUESTS / 10, codes
    assert after - before < GROWTH_BYTES, (before, after)
    assert files < 64
    said = log.read_text(errors="replace")
    assert said.count("Exception in ASGI application") == said.count(UVICORNS_OWN), said[-3000:]
    assert not any(secret in said for secret in SECRETS.values())


def headers_of_good() -> list[Header]:
    request = SignedRequest("POST", "http://x/webhooks/stripe", {}, GOOD)
    signed = sign(request, "stripe", secret=SECRETS["STRIPE_WEBHOOK_SECRET"], now=datetime.now(timezone.utc))
    return [(name.encode(), value.encode()) for name, value in signed.items()]
