"""Access control of the web pages: the token, the check of Host and Origin, and the security headers of every response."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import SettingsError
from headrace.http.local_requests import Refusal, refuse_foreign
from headrace.serving.web.problems import make_problem

TOKEN = "HEADRACE_TOKEN"
COOKIE = "headrace"
_SHORTEST = 16
_OPEN = frozenset({"/health", "/login"})
_OPEN_FOLDER = "/static/"
_NOT_ALLOWED = 1008  # of a web socket: policy violation

# Scripts and styles come only from our own files, also plotly's: see templates/plotly.html.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Lock:
    """The required token, or None if no token is required. `local` means that only this machine can connect."""

    token: str | None
    local: bool

    def opens(self, headers: Headers) -> bool:
        """Return whether a request has the token as bearer, or the cookie of a login. Compares in constant time."""
        if self.token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.accepts(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.session.encode())

    def accepts(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    @property
    def session(self) -> str:
        """The value of a login's cookie: an HMAC of the token, which does not reveal it."""
        return hmac.new((self.token or "").encode(), b"headrace session", hashlib.sha256).hexdigest()


def make_lock(host: str, environ: Mapping[str, str]) -> Lock:
    """Return the lock for an address to listen on. Raises a SettingsError for a non-loopback address without a token."""
    token = environ.get(TOKEN) or None
    local = _is_local(host)
    if token is None and not local:
        raise SettingsError(
            f"binding to a non-loopback address requires {TOKEN}, which is not set",
            where=f"--host {host}",
            next_step=f"Set {TOKEN} in the environment to at least {_SHORTEST} random characters, or omit --host.",
        )
    if token is not None and len(token) < _SHORTEST:
        raise SettingsError(
            f"the token must have at least {_SHORTEST} characters, and it has {len(token)}",
            where=TOKEN,
            next_step="Generate a token: openssl rand -hex 24",
        )
    return Lock(token, local)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """ASGI middleware that requires the lock's token and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, lock: Lock) -> None:
        self._app = app
        self._lock = lock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pass_other(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refuse(scope)
        await (refused or self._app)(scope, receive, send_guarded)

    async def _pass_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the server's own messages and authorised web sockets, which pipelines' pages may use."""
        headers = Headers(scope=scope) if scope["type"] == "websocket" else None
        if headers is None or (self._refuse_foreign("GET", headers) is None and self._lock.opens(headers)):
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": _NOT_ALLOWED})

    def _refuse_foreign(self, method: str, headers: Headers, *, takes_form: bool = False) -> Refusal | None:
        return refuse_foreign(method, headers, takes_form=takes_form) if self._lock.local else None

    def _refuse(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        foreign = self._refuse_foreign(scope["method"], headers, takes_form=path == "/login")
        if foreign is not None:
            return make_problem(foreign.status, foreign.what, where=path, next_step=foreign.next_step)
        if path in _OPEN or path.startswith(_OPEN_FOLDER) or self._lock.opens(headers):
            return None
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            return RedirectResponse(f"/login?next={quote(path)}", status_code=303)
        step = "Send it as Authorization: Bearer …, or sign in at /login."
        return make_problem(401, "a token is required", next_step=step, headers={"WWW-Authenticate": "Bearer"})


def local_path(path: str) -> str:
    """Return a redirect target within this application; `/` if the path leads to another site."""
    parts = urlsplit(path)
    plain = not parts.scheme and not parts.netloc and path.startswith("/") and not path.startswith("//")
    return path if plain and "\\" not in path and path.isprintable() else "/"
