"""Client of a schema registry, over the Confluent API, which other registries have too."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headrace.errors import NotFoundError, UnavailableError
from headrace.http.client import exchange
from headrace.kafka.schema_references import write_out

_TIMEOUT_SECONDS = 5.0
_OUTAGE_SECONDS = 2.0
_UNKNOWN_SECONDS = 30.0
_MOST_VERSIONS = 20
_MOST_REFERENCES = 100
_MOST_UNKNOWN = 10_000
_NOT_FOUND = 404


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject's schema."""

    subject: str
    version: int
    id: int
    schema: str


class Registry:
    """A client of the registry at a URL; thread-safe. Ids and versions are immutable, so each is requested once.

    After a failed request, all requests fail at once for a moment, so that not every message waits for the timeout. An unknown
    id is requested again after a while.
    """

    def __init__(self, url: str) -> None:
        self._url, self._headers = _split_secret(url)
        self._schemas: dict[int, str] = {}
        self._unknown: dict[int, tuple[float, str]] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._outage: tuple[float, str] | None = None
        self._lock = Lock()

    def schema(self, schema_id: int) -> str:
        """Return the text of an Avro schema. Raise a NotFoundError if the registry does not have the id."""
        with self._lock:
            until, why = self._unknown.get(schema_id, (0.0, ""))
            if time.monotonic() < until:
                raise NotFoundError(why, where=self._url)
            if schema_id not in self._schemas:
                try:
                    self._schemas[schema_id] = self._ask_for(schema_id)
                except NotFoundError as error:
                    if len(self._unknown) >= _MOST_UNKNOWN:
                        self._unknown.clear()
                    self._unknown[schema_id] = (time.monotonic() + _UNKNOWN_SECONDS, error.what)
                    raise
            return self._schemas[schema_id]

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the newest versions of a subject, oldest first; none for an unknown subject."""
        place = f"subjects/{quote(subject, safe='')}/versions"
        with self._lock:
            try:
                numbers = sorted(int(number) for number in self._get(place))[-_MOST_VERSIONS:]
                for number in numbers:
                    if (subject, number) not in self._versions:
                        answer = self._get(f"{place}/{number}")
                        schema = RegisteredSchema(subject, number, int(answer["id"]), str(answer["schema"]))
                        self._versions[subject, number] = schema
            except NotFoundError:
                return ()
            return tuple(self._versions[subject, number] for number in numbers)

    def _ask_for(self, schema_id: int) -> str:
        try:
            answer = self._get(f"schemas/ids/{schema_id}")
        except NotFoundError:
            raise NotFoundError(f"the registry has no schema {schema_id}", where=self._url) from None
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise self._unavailable(f"it returned no schema for id {schema_id}")
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise NotFoundError(f"schema {schema_id} is {answer['schemaType']}, not AVRO", where=self._url)
        text = str(answer["schema"])
        definitions: dict[str, str] = {}
        try:
            self._refer(answer.get("references"), definitions)
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # a fault of the registry, not of a message
            raise self._unavailable(f"it returned invalid references for schema {schema_id}") from error
        try:
            return write_out(text, definitions) if definitions else text
        except (ValueError, TypeError, RecursionError):
            return text  # the parser of the schema reports what is wrong

    def _refer(self, references: Any, definitions: dict[str, str]) -> None:
        """Add the schemas that a schema references, directly and indirectly, by type name."""
        for reference in references if isinstance(references, list) else ():
            name, subject, version = (
                str(reference["name"]),
                quote(str(reference["subject"]), safe=""),
                int(reference["version"]),
            )
            if name in definitions or len(definitions) >= _MOST_REFERENCES:
                continue
            answer = self._get(f"subjects/{subject}/versions/{version}")
            definitions[name] = str(answer["schema"])
            self._refer(answer.get("references"), definitions)

    def _get(self, path: str) -> Any:
        if not self._url:
            raise UnavailableError(
                "messages have schema ids, but no registry is configured", where="registry.url", next_step="Set registry.url."
            )
        if self._outage and time.monotonic() < self._outage[0]:
            raise self._unavailable(self._outage[1])
        try:
            status, body = exchange(f"{self._url}/{path}", headers=self._headers, timeout=_TIMEOUT_SECONDS)
            if status == _NOT_FOUND and _says_so_itself(body):
                raise NotFoundError(f"the registry has no {path}", where=self._url)
            if status < 300:
                content = json.loads(body)
                self._outage = None
                return content
            reason = f"it answered with status {status}"
        except (ConnectionError, ValueError) as error:
            reason = str(error)
        self._outage = (time.monotonic() + _OUTAGE_SECONDS, reason)
        raise self._unavailable(reason)

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"the schema registry does not answer: {reason}",
            where=self._url,
            next_step="Check the registry and its address: headrace doctor",
        )


def _says_so_itself(body: bytes) -> bool:
    """Return whether a 404 comes from the registry itself, and not from another web server at a wrong address."""
    try:
        answer: Any = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and str(answer.get("error_code", "")).startswith(str(_NOT_FOUND))


def _split_secret(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without its user and password, and the request headers with them."""
    parts = urlsplit(url.rstrip("/"))
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")), headers
