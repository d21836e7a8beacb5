"""Access control and security headers of the web pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import WebSocket, WebSocketDisconnect
from fastapi.testclient import TestClient

from headrace.errors import SettingsError
from headrace.serving.web.app import make_app
from headrace.serving.web.guard import COOKIE, TOKEN, Lock, local_path, make_lock
from headrace.serving.web.login_throttle import FREE_TRIES, LoginThrottle
from tests.serving.shop_lake import ShopLake
from tests.support.application import start_headrace

SECRET = "correct horse battery staple"
HTML = {"Accept": "text/html"}


@pytest.fixture
def locked(shop: ShopLake) -> Iterator[TestClient]:
    app = make_app(shop.context, Lock(SECRET, local=False))
    with TestClient(app, base_url="http://lake.example", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("path", ["/api/figures", "/api/flow", "/metrics", "/openapi.json", "/sql", "/nothing"])
def test_request_without_the_token_is_refused(locked: TestClient, path: str) -> None:
    answer = locked.get(path)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert locked.get(path, headers={"Authorization": f"Bearer {SECRET}x"}).status_code == 401
    assert locked.get(path, headers={"Authorization": f"Basic {SECRET}"}).status_code == 401
    assert locked.get(path, headers={"Cookie": f"{COOKIE}={SECRET}"}).status_code == 401
    assert locked.post(path).status_code == 401


def test_request_with_the_token_is_answered(locked: TestClient) -> None:
    assert locked.get("/api/figures", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 200
    assert locked.get("/health").json() == {"status": "healthy"}, "that it lives is no secret"


def test_web_sockets_of_pages_need_the_token_too(shop: ShopLake) -> None:
    app = make_app(shop.context, Lock(SECRET, local=False))

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")

    client = TestClient(app)
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/live"):
        pass
    with client.websocket_connect("/live", headers={"Authorization": f"Bearer {SECRET}"}) as socket:
        assert socket.receive_text() == "hello"


def test_web_sockets_of_a_local_server_are_closed_to_other_origins(shop: ShopLake) -> None:
    app = make_app(shop.context, Lock(None, local=True))

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")

    client, address = TestClient(app), "ws://127.0.0.1:8080/live"
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(address, headers={"Origin": "http://evil.example"}):
        pass
    with client.websocket_connect(address, headers={"Origin": "http://127.0.0.1:8080"}) as socket:
        assert socket.receive_text() == "hello"


def test_login_sets_a_session(locked: TestClient) -> None:
    answer = locked.get("/sql", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/sql")
    assert locked.get("/login?next=/sql").status_code == 200
    wrong = locked.post("/login", data={"token": "wrong", "next": "/sql"})
    assert (wrong.status_code, wrong.headers.get("set-cookie")) == (403, None)
    right = locked.post("/login", data={"token": SECRET, "next": "/sql"})
    assert (right.status_code, right.headers["location"]) == (303, "/sql")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert SECRET not in cookie
    assert locked.get("/sql").status_code == 200


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb", "javascript:1"])
def test_login_redirects_only_within_the_application(locked: TestClient, path: str) -> None:
    assert local_path(path) == "/"
    assert locked.post("/login", data={"token": SECRET, "next": path}).headers["location"] == "/"


@pytest.mark.parametrize("path", ["/", "/api/figures", "/static/base.css", "/nothing", "/metrics"])
def test_every_answer_has_its_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'self'"
    assert not {"script-src", "style-src", "connect-src"} & set(policy), "all of them are ours, and nothing else"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert policy["frame-ancestors"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_no_page_has_a_script_or_a_style_in_it(client: TestClient) -> None:
    for path in ("/", "/sql", "/tables/raw.charges", "/login"):
        text = client.get(path).text
        assert "<style" not in text
        assert " style=" not in text
        assert text.count("<script") == text.count("<script src=") + text.count('<script type="module" src=')


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.1:3000", ""])
def test_name_that_leads_to_this_machine_is_not_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/figures", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://127.0.0.1:3000"}, 200),
    ],
)
def test_request_of_another_site_is_refused(client: TestClient, headers: dict[str, str], status: int) -> None:
    own = {"Host": "127.0.0.1:3000", "Content-Type": "application/json", **headers}
    assert client.post("/api/query", content=b'{"sql": "SELECT 1"}', headers=own).status_code == status


@pytest.mark.parametrize("host", ["localhost", "localhost:3000", "127.0.0.1:3000", "[::1]:3000", "[::1]"])
def test_names_of_this_machine_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/api/figures", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "lake.example"])
def test_non_loopback_address_requires_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match="requires HEADRACE_TOKEN, which is not set"):
        make_lock(host, {})
    with pytest.raises(SettingsError, match=r"at least 16 characters, and it has 1\n"):
        make_lock(host, {TOKEN: "a"})
    with pytest.raises(SettingsError, match="at least 16 characters, and it has 5"):
        make_lock(host, {TOKEN: "short"})
    assert make_lock(host, {TOKEN: SECRET}) == Lock(SECRET, local=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_address_requires_no_token(host: str) -> None:
    assert make_lock(host, {}) == Lock(None, local=True)
    assert make_lock(host, {TOKEN: SECRET}).token == SECRET, "who sets one means it"


def test_command_refuses_to_start_without_a_token(tmp_path: Path) -> None:
    application = start_headrace("serve", "--host", "0.0.0.0", "--port", "0", environ={}, folder=tmp_path)
    assert application.wait(seconds=60) == 2
    assert "HEADRACE_TOKEN" in application.said()


def test_login_limits_the_form(locked: TestClient) -> None:
    for content in (b"token=" + b"x" * 5_000, (b"x" * 1_000 for _ in range(10))):
        assert locked.post("/login", content=content).status_code == 413
    assert locked.post("/login", content=b"x" * 10_000_000).status_code == 413


def test_login_throttles_wrong_tokens(locked: TestClient) -> None:
    answers = [locked.post("/login", data={"token": f"wrong {number}"}) for number in range(FREE_TRIES)]
    assert {answer.status_code for answer in answers} == {403}
    refused = locked.post("/login", data={"token": SECRET})
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1"), "a right one is not looked at either"
    assert locked.get("/api/figures", headers={"Authorization": f"Bearer {SECRET}"}).status_code == 200


def test_login_backoff_doubles_and_expires() -> None:
    now = 0.0
    throttle = LoginThrottle(clock=lambda: now)
    waits = []
    for _ in range(14):
        throttle.fail("2001:db8::1")
        waits.append(throttle.wait_seconds("2001:db8::ffff"))
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert throttle.wait_seconds("10.0.0.1") == 0
    now = 61.0
    assert throttle.wait_seconds("2001:db8::1") == 0
    throttle.fail("2001:db8::1")
    assert throttle.wait_seconds("2001:db8::1") == 60
    throttle.succeed("2001:db8::1")
    assert throttle.wait_seconds("2001:db8::1") == 0
    for number in range(5_000):
        throttle.fail(str(number))
    assert len(throttle._failures) <= 1_000


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"sql":' * 20_000 + b"1" + b"}" * 20_000])
def test_deep_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/query", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["next_step"]


def test_long_bodies_are_refused_before_they_are_read(client: TestClient, locked: TestClient) -> None:
    for content in (b"x" * 300_000, (b"x" * 10_000 for _ in range(30))):
        answer = client.post("/api/query", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["what"]) == (413, "the body has more than 262,144 bytes")
    assert locked.post("/api/query", content=b"x" * 300_000).status_code == 401
