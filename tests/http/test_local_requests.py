"""The requests that a loopback server accepts: Host, Origin and content type."""

from __future__ import annotations

import pytest

from headrace.http.local_requests import refuse_foreign

JSON = {"content-type": "application/json", "content-length": "2"}


@pytest.mark.parametrize("host", ["127.0.0.1:8083", "localhost", "LOCALHOST:1", "[::1]:8083", "[::1]"])
def test_requests_for_a_local_host_pass(host: str) -> None:
    assert refuse_foreign("GET", {"host": host}) is None
    assert refuse_foreign("POST", {"host": host, "origin": f"http://{host}", **JSON}) is None
    assert refuse_foreign("POST", {"host": host}) is None, "no body, no type"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8083", "127.0.0.1.evil.example", "localhost.evil.example:1"]
)
def test_foreign_host_is_refused(host: str) -> None:
    refusal = refuse_foreign("GET", {"host": host})
    assert refusal is not None
    assert refusal.status == 421


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:3000", "file://", "http://127.0.0.1:8083.evil.example", "http://["],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_foreign_origin_is_refused(origin: str, method: str) -> None:
    refusal = refuse_foreign(method, {"host": "127.0.0.1:8083", "origin": origin, **JSON})
    assert refusal is not None
    assert refusal.status == 403


def test_another_site_is_refused_without_an_origin() -> None:
    refusal = refuse_foreign("POST", {"host": "127.0.0.1", "sec-fetch-site": "cross-site", **JSON})
    assert refusal is not None
    assert refusal.status == 403
    assert refuse_foreign("GET", {"host": "127.0.0.1", "sec-fetch-site": "cross-site"}) is None, "a link may lead here"


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "text/plain;charset=UTF-8", "content-length": "2"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-length": "2"},
        {"transfer-encoding": "chunked"},
    ],
)
def test_requests_without_a_preflight_are_refused(headers: dict[str, str]) -> None:
    refusal = refuse_foreign("POST", {"host": "127.0.0.1", **headers})
    assert refusal is not None
    assert refusal.status == 415


def test_form_is_accepted_where_one_is_expected() -> None:
    form = {"host": "127.0.0.1", "content-type": "application/x-www-form-urlencoded", "content-length": "2"}
    assert refuse_foreign("POST", form, takes_form=True) is None
    assert refuse_foreign("POST", {**form, "content-type": "text/plain"}, takes_form=True) is not None
