"""Find and redact passwords in addresses: URLs and libpq connection strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from headrace.settings.setting_specs import SENSITIVE

LOGIN = r"://[^/:@\s]*:[^/\s]+@"
"""A user and a password before a host. The pattern is also valid in Java."""

UNREADABLE = "an address that can't be read"
_LOGIN = re.compile(r"://[^/:@]*:([^/]*)@")
_PARAMETER = re.compile(r"[?&]([^=&#]*)=([^&#]*)")


def passwords_in(address: str) -> tuple[str, ...]:
    """Return the passwords in an address, both as written and URL-decoded.

    If libpq can't parse the address, return the whole address, since it may contain a password anywhere.
    """
    written = [address[start:end] for start, end in _places(address)]
    passwords = dict.fromkeys(password for text in written for password in (text, unquote(text)) if password)
    return (*passwords, *(password for password in _libpq_passwords(address) if password not in passwords))


def without_passwords(address: str) -> str:
    """Return an address with its passwords redacted: `postgresql://me:***@host/lake`."""
    shown = address
    for start, end in sorted(_places(address), reverse=True):
        shown = f"{shown[:start]}***{shown[end:]}"
    return UNREADABLE if _libpq_passwords(shown.replace("***", "")) else shown


def _places(url: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the passwords in a URL."""
    login = _LOGIN.search(url)
    if login and login[1]:
        yield login.span(1)
    for parameter in _PARAMETER.finditer(url, login.end() if login else 0) if "://" in url else ():
        if parameter[2] and re.search(SENSITIVE, unquote(parameter[1])):
            yield parameter.span(2)


def _libpq_passwords(address: str) -> list[str]:
    """Return the passwords that libpq reads from a Postgres URL or from `host=… password=…`."""
    if not address.startswith(("postgresql://", "postgres://")) and ("://" in address or "=" not in address):
        return []
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(address)
    except psycopg.Error:
        return [address]
    return [str(value) for name, value in parts.items() if value and re.search(SENSITIVE, name)]
