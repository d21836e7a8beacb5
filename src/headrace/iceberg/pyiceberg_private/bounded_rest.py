"""PyIceberg's REST catalog with timeouts: without them it would wait for a response forever.

The server deletes old metadata, as with Iceberg's Java library. PyIceberg would try to delete the files again and log a warning
for each.
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
    """A REST catalog whose requests time out. The timeouts are properties that Iceberg's Java library supports, too."""

    def _create_session(self) -> Session:
        return self._bounded(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        """Return the auth manager, with its own session to request tokens.

        On the catalog's session it would send the expired token together with the client secret, which OAuth2 forbids (RFC
        6749, 2.3) and servers refuse.
        """
        token_session = self._bounded(Session())
        token_session.headers, token_session.verify, token_session.cert = session.headers, session.verify, session.cert
        return super()._create_legacy_oauth2_auth_manager(token_session)

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
