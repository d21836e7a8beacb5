"""PyIceberg's REST catalog, with an end to its waiting: by itself it would wait for an answer for ever.

Old metadata is left to the server, as Iceberg's Java library does: it has deleted the files by then, and PyIceberg would warn
of each that it can't delete.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from headrace.iceberg.catalog.properties import REST_ANSWER_MS, REST_CONNECT_MS


class BoundedRestCatalog(RestCatalog):
    """A catalog whose requests end, with an answer or with a Timeout; the bounds are properties that Iceberg's Java library
    knows too."""

    def _create_session(self) -> Session:
        return self._bounded(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        """Return who asks for tokens, with a session of its own: on the catalog's it would show the token that has ended
        beside its secret, which OAuth2 forbids (RFC 6749, 2.3) and servers refuse."""
        asking = self._bounded(Session())
        asking.headers, asking.verify, asking.cert = session.headers, session.verify, session.cert
        return super()._create_legacy_oauth2_auth_manager(asking)

    def _bounded(self, session: Session) -> Session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Bounded(*(int(self.properties[name]) / 1_000 for name in (REST_CONNECT_MS, REST_ANSWER_MS))))
        return session

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete nothing."""


class _Bounded(HTTPAdapter):
    def __init__(self, connect_seconds: float, answer_seconds: float) -> None:
        super().__init__()
        self._seconds = (connect_seconds, answer_seconds)

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or self._seconds
        return super().send(request, *arguments, **options)
