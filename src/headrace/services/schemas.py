"""Schemas that a registry keeps, asked for by the Confluent API, which the registries of others have too."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from threading import Lock
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from headrace.errors import NotFoundError, UnavailableError

_TIMEOUT_SECONDS = 3.0
_AWAY_SECONDS = 10.0
_MOST_VERSIONS = 20
_LONGEST = 4 * 1024 * 1024


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject's schema."""

    subject: str
    version: int
    id: int
    schema: str


@dataclass
class Registry:
    """A registry at a URL; thread-safe. A schema is asked for once, because an id means the same for ever.

    One that does not answer is left alone for a while, so that a page of messages does not wait for each of them.
    """

    url: str
    _known: dict[int, str] = field(default_factory=dict)
    _versions: dict[tuple[str, int], RegisteredSchema] = field(default_factory=dict)
    _away: tuple[float, str] | None = None
    _lock: Lock = field(default_factory=Lock)

    def schema(self, schema_id: int) -> str:
        """Gives back the text of a schema; an id that the registry does not have is a NotFoundError."""
        with self._lock:
            if schema_id not in self._known:
                self._known[schema_id] = str(self._get(f"schemas/ids/{schema_id}")["schema"])
            return self._known[schema_id]

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Gives back the newest versions of a subject, the oldest of them first; none where it is not known."""
        place = f"subjects/{quote(subject, safe='')}/versions"
        with self._lock:
            try:
                numbers = sorted(int(each) for each in self._get(place))[-_MOST_VERSIONS:]
                for number in numbers:
                    if (subject, number) not in self._versions:
                        found = self._get(f"{place}/{number}")
                        schema = RegisteredSchema(subject, number, int(found["id"]), str(found["schema"]))
                        self._versions[subject, number] = schema
            except NotFoundError:
                return ()
            return tuple(self._versions[subject, number] for number in numbers)

    def _get(self, path: str) -> Any:
        if self._away and time.monotonic() < self._away[0]:
            raise self._unavailable(self._away[1])
        url, headers = _without_password(self.url)
        try:
            with urlopen(Request(f"{url}/{path}", headers=headers), timeout=_TIMEOUT_SECONDS) as answer:
                found = json.loads(answer.read(_LONGEST))
        except HTTPError as error:
            if error.code == 404:
                raise NotFoundError(f"the registry has no {path}", where=url) from error
            reason = f"it answered with {error.code}"
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        else:
            self._away = None
            return found
        self._away = (time.monotonic() + _AWAY_SECONDS, reason)
        raise self._unavailable(reason)

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"the schema registry does not answer: {reason}",
            where=_without_password(self.url)[0],
            next_step="Check that it runs: headrace status.",
        )


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """Gives back the address without its user and password, and those as a header."""
    parts = urlsplit(url.rstrip("/"))
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return plain, headers
