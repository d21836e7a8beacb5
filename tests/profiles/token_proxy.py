"""A catalog that asks for tokens: in front of one that asks nobody, it gives out tokens that end after seconds.

It keeps to OAuth2 (RFC 6749): it takes a client's name and secret in one way alone, a scope that it knows, and the grant
`client_credentials`; tokens can't be exchanged, as with most who give them out.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

CLIENT, SECRET, SCOPE = "headrace", "cl1ent:secret", "PRINCIPAL_ROLE:ALL"
TOKENS = "/login/tokens"
_NOT_HANDED_ON = {"host", "authorization", "connection", "content-length", "transfer-encoding"}


@dataclass
class TokenProxy:
    """`told_seconds` is the life of a token in its response; it is taken for `slack_seconds` longer, as by servers that
    allow for clocks that differ."""

    behind: str
    told_seconds: int
    slack_seconds: float = 0.0
    port: int = 0
    live: dict[str, float] = field(default_factory=dict)
    given: Counter[str] = field(default_factory=Counter)
    """How many tokens each program asked for with success, by its User-Agent's first word."""
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """What was wrong with requests for tokens."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The settings that lead to the catalog."""
        return {
            "HEADRACE_CATALOG_TYPE": "rest",
            "HEADRACE_CATALOG_URI": self.url,
            "HEADRACE_CATALOG_CREDENTIAL": f"{CLIENT}:{SECRET}",
            "HEADRACE_CATALOG_SCOPE": SCOPE,
            "HEADRACE_CATALOG_OAUTH2_SERVER_URI": f"{self.url}{TOKENS}",
        }

    def end_tokens(self) -> None:
        """End all tokens before their time."""
        self.live.clear()

    def give(self, form: dict[str, list[str]], authorization: str, program: str) -> tuple[int, dict[str, object]]:
        """Return the answer to a request for a token."""
        said = {name: values[0] for name, values in form.items()}
        problem = ""
        if said.get("grant_type") != "client_credentials":
            problem = f"unsupported_grant_type: {said.get('grant_type')}"
        elif authorization:
            problem = "invalid_client: a second way to say who asks"
        elif (said.get("client_id"), said.get("client_secret")) != (CLIENT, SECRET):
            problem = "invalid_client: not the client's name and secret"
        elif said.get("scope") != SCOPE:
            problem = f"invalid_scope: {said.get('scope')}"
        if problem:
            self.problems.append(f"{program}: {problem}")
            error, _, about = problem.partition(": ")
            return (401 if error == "invalid_client" else 400), {"error": error, "error_description": about}
        token = secrets.token_urlsafe(16)
        self.live[token] = time.monotonic() + self.told_seconds + self.slack_seconds
        self.given[program] += 1
        kind = "urn:ietf:params:oauth:token-type:access_token"
        answer = {"access_token": token, "token_type": "bearer", "issued_token_type": kind, "expires_in": self.told_seconds}
        return 200, answer

    def takes(self, authorization: str) -> bool:
        kind, _, token = authorization.partition(" ")
        return kind == "Bearer" and self.live.get(token, 0.0) > time.monotonic()


@contextmanager
def token_proxy(behind: str, *, told_seconds: int, slack_seconds: float = 0.0) -> Iterator[TokenProxy]:
    """Yield a proxy on 127.0.0.1, in front of the catalog at `behind`."""
    proxy = TokenProxy(behind, told_seconds, slack_seconds)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    proxy.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: TokenProxy
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        program = (self.headers.get("User-Agent") or "unknown").partition("/")[0]
        authorization = self.headers.get("Authorization") or ""
        if self.path == TOKENS:
            status, answer = self.proxy.give(parse_qs(body.decode()), authorization, program)
            self._answer(status, json.dumps(answer).encode())
        elif not self.proxy.takes(authorization):
            self.proxy.refused[program] += 1
            error = {"message": "the token has ended, or there is none", "type": "NotAuthorizedException", "code": 401}
            self._answer(401, json.dumps({"error": error}).encode())
        else:
            self._answer(*self._ask_behind(body))

    do_GET = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

    def _ask_behind(self, body: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection(urlsplit(self.proxy.behind).netloc, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_HANDED_ON}
            connection.request(self.command, self.path, body=body or None, headers={**headers, "Accept-Encoding": "identity"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass
