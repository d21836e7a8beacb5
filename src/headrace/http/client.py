"""Asks the servers that answer over HTTP in JSON: Connect, the registry and Trino."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import UnavailableError

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """The status of an answer and its JSON, or its text where it is none."""

    status: int
    body: Any

    @property
    def is_fine(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        """What the server says in words."""
        said = self.body.get("message") if isinstance(self.body, dict) else self.body
        return str(said or f"status {self.status}")


def ask(
    url: str,
    *,
    method: str = "GET",
    body: object = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Answer:
    """Return a server's answer, whatever its status; a server that gives none is an UnavailableError.

    A body is sent as JSON, and one that is bytes as it is.
    A user and a password in the address are shown to it as HTTP's basic authentication has it.
    """
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    parts = urllib.parse.urlsplit(url)
    credentials, _, host = parts.netloc.rpartition("@")
    sent = {"Content-Type": "application/json", **(headers or {})}
    if credentials:
        said = urllib.parse.unquote(credentials).encode()
        sent["Authorization"] = f"Basic {base64.b64encode(said).decode()}"
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), data=data, method=method, headers=sent)
    try:
        with _open(request, timeout=timeout) as response:
            return Answer(response.status, _read(response.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, _read(error.read()))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnavailableError(
            f"{without_secrets(url)} does not answer: {reason}", next_step="See that it runs: headrace status"
        ) from error


def is_fine(url: str, *, timeout: float) -> bool:
    """Return whether a server answers that all is well."""
    try:
        return ask(url, timeout=timeout).is_fine
    except UnavailableError:
        return False


def split_login(url: str) -> tuple[str, str, str]:
    """Return an address without its login, the user and the password; the latter two are empty where it has none."""
    parts = urllib.parse.urlsplit(url)
    user, password = (urllib.parse.unquote(each or "") for each in (parts.username, parts.password))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), user, password


def without_secrets(url: str) -> str:
    """Return an address without user and password, for people."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _open(request: urllib.request.Request, *, timeout: float) -> Any:
    """Open an address of ours without the proxy that the environment may name."""
    host = urllib.parse.urlsplit(request.full_url).hostname
    handlers = [urllib.request.ProxyHandler({})] if host in ("127.0.0.1", "localhost") else []
    return urllib.request.build_opener(*handlers).open(request, timeout=timeout)


def _read(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode("utf-8", errors="replace").strip()[:500]
