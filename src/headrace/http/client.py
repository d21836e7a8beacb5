"""An HTTP client for servers that answer in JSON, such as Connect and the registry.

httpx takes as long to import as all of Headrace's command line, so it is imported for the first request.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.errors import UnavailableError

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 30.0
LONGEST = 64 * 1024 * 1024
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


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
    try:
        status, content = exchange(
            parts._replace(netloc=host).geturl(), method=method, content=data, headers=sent, timeout=timeout
        )
    except ConnectionError as error:
        raise UnavailableError(
            f"{without_secrets(url)} does not answer: {error}", next_step="Check that it runs: headrace status"
        ) from error
    return Answer(status, _read(content))


def exchange(
    url: str, *, method: str = "GET", content: bytes | None = None, headers: Mapping[str, str], timeout: float
) -> tuple[int, bytes]:
    """Return the status and the content of a response, whatever its status. Redirects are followed.

    Raises a ConnectionError with the reason if there is no response, or if it is longer than LONGEST.
    """
    import httpx

    try:
        with (
            _open_client(url, timeout=timeout) as client,
            client.stream(method, url, content=content, headers=headers) as response,
        ):
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if len(body) > LONGEST:
                    raise ConnectionError(f"the response is longer than {LONGEST:,} bytes")
            return response.status_code, bytes(body)
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError) as error:  # ImportError: a SOCKS proxy
        raise ConnectionError(str(error) or type(error).__name__) from error


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


def _open_client(url: str, *, timeout: float) -> httpx.Client:
    """Return a client for one request. It bypasses the environment's proxies for addresses of this machine."""
    import httpx

    is_loopback = urllib.parse.urlsplit(url).hostname in _LOOPBACK
    return httpx.Client(timeout=timeout, follow_redirects=True, trust_env=not is_loopback, verify=_trusted())


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Return the certificates that this machine trusts; httpx alone would read its own list for every client."""
    return ssl.create_default_context()


def _read(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode("utf-8", errors="replace").strip()[:500]
