"""TLS and SASL of a connection to a broker.

Settings have librdkafka's names. They contain certificates and keys as PEM text, because a task may run on another machine.
The SASL mechanisms are kafka-python's.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from headrace.errors import UnavailableError

Exchange = Callable[[Any, Any, int], Any]
"""Sends a request and returns its response of a type and version."""

_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 1


class Security:
    """The security of a cluster: none, TLS, SASL, or both. Created once for all connections."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        protocol = settings.get("security.protocol", "PLAINTEXT")
        self._context = _tls_context(settings) if protocol.endswith("SSL") else None
        self._login = _login_of(settings) if protocol.startswith("SASL") else None

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """Return the socket, with TLS if configured. The broker's certificate must match `host`."""
        return self._context.wrap_socket(plain, server_hostname=host) if self._context else plain

    def log_in(self, exchange: Exchange) -> None:
        """Authenticate. Raise an UnavailableError if the broker refuses: a retry helps while a password is being changed."""
        if self._login is None:
            return
        name = self._login["sasl_mechanism"]
        request = SaslHandshakeRequest(mechanism=name, version=_HANDSHAKE_VERSION)
        answer = exchange(request, SaslHandshakeResponse, _HANDSHAKE_VERSION)
        if answer.error_code:
            raise refused(f"the broker does not support {name}, only {', '.join(answer.mechanisms)}")
        mechanism = get_sasl_mechanism(name)(**self._login)
        while not mechanism.is_done():
            request = SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes(), version=_AUTHENTICATE_VERSION)
            answer = exchange(request, SaslAuthenticateResponse, _AUTHENTICATE_VERSION)
            if answer.error_code:
                raise refused(answer.error_message or f"error {answer.error_code}")
            try:
                mechanism.receive(answer.auth_bytes)
            except (ValueError, KeyError) as error:
                raise refused("the broker could not prove that it knows the password") from error


def _login_of(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        "security_protocol": "SASL_SSL",  # avoids kafka-python's warning about plaintext, which the settings chose
        "sasl_mechanism": settings["sasl.mechanism"],
        "sasl_plain_username": settings["sasl.username"],
        "sasl_plain_password": settings["sasl.password"],
    }


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=settings.get("ssl.ca.pem"))
    if "ssl.certificate.pem" in settings:
        descriptor, path = tempfile.mkstemp()  # Python reads keys only from a file; only the owner can read this one
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write("\n".join((settings["ssl.certificate.pem"], settings.get("ssl.key.pem", ""))))
            context.load_cert_chain(path, password=settings.get("ssl.key.password"))
        finally:
            os.unlink(path)
    return context


def refused(why: str) -> UnavailableError:
    """Return the error of a broker that refuses a login."""
    return UnavailableError(
        f"Kafka authentication failed: {why}",
        where="kafka.sasl_mechanism",
        next_step="Check HEADRACE_KAFKA_USERNAME and HEADRACE_KAFKA_PASSWORD.",
    )
