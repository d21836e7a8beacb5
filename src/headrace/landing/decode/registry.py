"""The schema registry, as Confluent's API has it: which schema a message was written with."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from functools import lru_cache
from http.client import HTTPException
from typing import Any

from headrace.errors import UnavailableError

_SECONDS = 10.0
_NOT_FOUND = 404
_ASK_AGAIN_SECONDS = 30.0


class UnknownSchemaError(Exception):
    """The registry answers, and has no such schema, or one that is not Avro; the message says which."""


class Registry:
    """Gives back schemas by their ids, each asked for once: what an id means never changes."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._found: dict[int, str] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> str:
        """Gives back the text of a schema. A registry that can't be asked is an UnavailableError."""
        if schema_id in self._found:
            return self._found[schema_id]
        asked, why = self._unknown.get(schema_id, (0.0, ""))
        if why and time.monotonic() - asked < _ASK_AGAIN_SECONDS:
            raise UnknownSchemaError(why)
        try:
            self._found[schema_id] = self._ask(schema_id)
        except UnknownSchemaError as error:
            self._unknown[schema_id] = (time.monotonic(), str(error))
            raise
        return self._found[schema_id]

    def _ask(self, schema_id: int) -> str:
        if not self._url:
            raise _away("messages name schemas of a registry, and none is set", where="registry.url")
        try:
            with urllib.request.urlopen(f"{self._url}/schemas/ids/{schema_id}", timeout=_SECONDS) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _NOT_FOUND and _is_confluent(error.read()):
                    raise UnknownSchemaError(f"the registry has no schema {schema_id}") from None
            raise _away(f"the schema registry answered {error.code} for schema {schema_id}", where=self._url) from error
        except (OSError, ValueError, HTTPException) as error:
            raise _away(f"the schema registry does not answer: {error}", where=self._url) from error
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise _away(f"the schema registry gave no schema for {schema_id}", where=self._url)
        if found.get("schemaType", "AVRO") != "AVRO":
            raise UnknownSchemaError(f"schema {schema_id} is {found['schemaType']}, not AVRO")
        return str(found["schema"])


@lru_cache(maxsize=8)
def registry_of_this_worker(url: str) -> Registry:
    """Gives back the registry that this Python worker keeps between batches."""
    return Registry(url)


def _is_confluent(body: bytes) -> bool:
    """Says whether the registry itself says that there is nothing; of a wrong address a web server says the same."""
    try:
        said: Any = json.loads(body)
    except ValueError:
        return False
    return isinstance(said, dict) and str(said.get("error_code", "")).startswith(str(_NOT_FOUND))


def _away(what: str, *, where: str) -> UnavailableError:
    return UnavailableError(
        what, where=where, next_step="Check the registry and its address: headrace doctor says which it is."
    )
