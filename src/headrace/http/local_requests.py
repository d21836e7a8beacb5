"""The rule for requests to a loopback server: which Host, Origin and Content-Type it accepts.

A web page on another site can make a browser send requests to 127.0.0.1. With DNS rebinding they carry the page's own name in
`Host`. Without it, they carry the page's address in `Origin`, and a body of a type that a form can send needs no preflight.

Standard library only: the watchdog loads this file without Headrace's packages (see gate.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.IGNORECASE | re.ASCII)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM = "application/x-www-form-urlencoded"
_FORM_TYPES = frozenset({_FORM, "multipart/form-data", "text/plain"})
"""What a page may send to any site without asking first (a "simple request" of the Fetch standard)."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused: the HTTP status, what is wrong, and what to do next."""

    status: int
    what: str
    next_step: str


def is_local_host(host: str) -> bool:
    """Return whether a `Host` header names this machine, with or without a port."""
    return _LOCAL_HOST.fullmatch(host) is not None


def refuse_foreign(method: str, headers: Mapping[str, str], *, takes_form: bool = False) -> Refusal | None:
    """Return why a request is refused, or None if it is accepted. `headers` has lower-case names.

    `takes_form` accepts the body of an HTML form of the same origin.
    """
    host = headers.get("host", "")
    if not is_local_host(host):
        return Refusal(421, "the Host header does not name this machine", "Use http://127.0.0.1 or http://localhost.")
    origin = headers.get("origin")
    if origin is not None and not _is_same_origin(origin, host):
        return Refusal(403, "a page of another origin sent this request", "Send it from a page of this server, or with curl.")
    if method in _SAFE_METHODS:
        return None
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return Refusal(403, "a page of another site sent this request", "Send it from a page of this server, or with curl.")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers
    if (kind in _FORM_TYPES and not (takes_form and kind == _FORM)) or (has_body and not kind):
        return Refusal(415, f"the content type is {kind or 'missing'}", "Send JSON with Content-Type: application/json.")
    return None


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
