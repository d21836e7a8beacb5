"""An HTTP client for servers that answer in JSON: Connect, the registry and Trino."""

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
    """The status of a response, and its JSON, or its text if it is not JSON."""

    status: int
    body: Any

    @property
    def is_fine(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        """The server's message, else its status."""
        text = self.body.get("message") if isinstance(self.body, dict) else self.body
        return str(text or f"status {self.status}")


def ask(
    url: str,
    *,
    method: str = "GET",
    body: object = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Answer:
    """Return a server's response, whatever its status.

    Sends a body of bytes unchanged, any other body as JSON, and a user and password in the URL as HTTP basic authentication.
    Raises an UnavailableError if the server does not respond.
    """
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    parts = urllib.parse.urlsplit(url)
    credentials, _, host = parts.netloc.rpartition("@")
    sent = {"Content-Type": "application/json", **(headers or {})}
    if credentials:
        login = urllib.parse.unquote(credentials).encode()
        sent["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), data=data, method=method, headers=sent)
    try:
        with _open(request, timeout=timeout) as response:
            return Answer(response.status, _read(response.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, _read(error.read()))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnavailableError(
            f"{without_secrets(url)} does not answer: {reason}", next_step="Check that it runs: headrace status"
        ) from error


def is_fine(url: str, *, timeout: float) -> bool:
    """Return whether a server answers with a status of success."""
    try:
        return ask(url, timeout=timeout).is_fine
    except UnavailableError:
        return False


def split_login(url: str) -> tuple[str, str, str]:
    """Return a URL without its login, the user and the password; both are empty if the URL has none."""
    parts = urllib.parse.urlsplit(url)
    user, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), user, password


def without_secrets(url: str) -> str:
    """Return a URL without user and password, for messages."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _open(request: urllib.request.Request, *, timeout: float) -> Any:
    """Open a URL; bypass the environment's proxy for addresses of this machine."""
    host = urllib.parse.urlsplit(request.full_url).hostname
    handlers = [urllib.request.ProxyHandler({})] if host in ("127.0.0.1", "localhost") else []
    return urllib.request.build_opener(*handlers).open(request, timeout=timeout)


def _read(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode("utf-8", errors="replace").strip()[:500]
