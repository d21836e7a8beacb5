"""Passwords in addresses: where they are written, in a URL or as libpq's keywords, and how an address looks without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from headrace.settings.setting_specs import SENSITIVE

LOGIN = r"://[^/:@\s]*:[^/\s]+@"
"""A name and a password before a host, as Java's patterns say it too."""

UNREADABLE = "an address that can't be read"
_LOGIN = re.compile(r"://[^/:@]*:([^/]*)@")
_PARAMETER = re.compile(r"[?&]([^=&#]*)=([^&#]*)")


def passwords_in(address: str) -> tuple[str, ...]:
    """Return the passwords of an address, each as it is written there and as it is meant.

    What can't be read may be one anywhere: then it is the whole address.
    """
    written = [address[start:end] for start, end in _places(address)]
    found = dict.fromkeys(each for text in written for each in (text, unquote(text)) if each)
    return (*found, *(each for each in _told_libpq(address) if each not in found))


def without_passwords(address: str) -> str:
    """Return an address as people may see it: `postgresql://me:***@host/lake`."""
    shown = address
    for start, end in sorted(_places(address), reverse=True):
        shown = f"{shown[:start]}***{shown[end:]}"
    return UNREADABLE if _told_libpq(shown.replace("***", "")) else shown


def _places(url: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where a password is written in a URL."""
    login = _LOGIN.search(url)
    if login and login[1]:
        yield login.span(1)
    for parameter in _PARAMETER.finditer(url, login.end() if login else 0) if "://" in url else ():
        if parameter[2] and re.search(SENSITIVE, unquote(parameter[1])):
            yield parameter.span(2)


def _told_libpq(address: str) -> list[str]:
    """Return what libpq would read as passwords; it takes URLs of its own, and `host=… password=…`."""
    if not address.startswith(("postgresql://", "postgres://")) and ("://" in address or "=" not in address):
        return []
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(address)
    except psycopg.Error:
        return [address]
    return [str(value) for name, value in parts.items() if value and re.search(SENSITIVE, name)]
