"""The identifiers of a person (emails, phones and ids), and how to find them in text. Pure: no session, no I/O."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

SHORTEST_PHONE = 7
"""Digits that a phone needs to be searched for: shorter numbers occur in too many rows of others."""

SHORTEST_ID = 8
"""Characters that an id needs to be searched for in every column, and not only where the pipeline declares it."""

_LETTERS = r"0-9A-Za-z_\u00c0-\u024f\u0370-\u1fff"
_BEFORE = rf"(?:(?<![{_LETTERS}.%+\-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{{4}}))"
_AFTER = rf"(?![{_LETTERS}\-])(?!\.[{_LETTERS}])"
_SALT_BYTES = 16


@dataclass(frozen=True)
class Identifiers:
    """The identifiers of one person: emails in lower case, phones as digits, and ids by source (`shopify`, `stripe`).

    `written` are emails and phones as rows spell them, for the search in text.
    """

    emails: frozenset[str] = frozenset()
    phones: frozenset[str] = frozenset()
    ids: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    written: frozenset[str] = frozenset()

    def __or__(self, other: Identifiers) -> Identifiers:
        kinds = {*self.ids, *other.ids}
        none: frozenset[str] = frozenset()
        return Identifiers(
            self.emails | other.emails,
            self.phones | other.phones,
            MappingProxyType({kind: self.ids.get(kind, none) | other.ids.get(kind, none) for kind in sorted(kinds)}),
            self.written | other.written,
        )

    def without(self, written: Iterable[str]) -> Identifiers:
        """Return the identifiers without these emails and phones, in any spelling."""
        emails = {text.strip().lower() for text in written}
        phones = {digits_of(text) for text in written if "@" not in text}
        rest = {text for text in self.written if text.lower() not in emails and digits_of(text) not in phones - {""}}
        return replace(self, emails=self.emails - emails, phones=self.phones - phones, written=frozenset(rest))

    def __bool__(self) -> bool:
        return bool(self.emails or self.phones or any(self.ids.values()))

    @property
    def long_ids(self) -> frozenset[str]:
        """The ids that are long enough to be searched for in every column."""
        return frozenset(value for ids in self.ids.values() for value in ids if len(value) >= SHORTEST_ID)


def identify(
    *, emails: Iterable[str | None] = (), phones: Iterable[str | None] = (), ids: Iterable[tuple[str, str | None]] = ()
) -> Identifiers:
    """Return the identifiers of values as written. Empty and too short values are skipped."""
    kinds: dict[str, set[str]] = {}
    for kind, value in ids:
        if value and value.strip():
            kinds.setdefault(kind, set()).add(value.strip())
    addresses = {email.strip() for email in emails if email and _is_address(email.strip())}
    numbers = {phone.strip() for phone in phones if phone and len(digits_of(phone)) >= SHORTEST_PHONE}
    return Identifiers(
        frozenset(address.lower() for address in addresses),
        frozenset(digits_of(number) for number in numbers),
        MappingProxyType({kind: frozenset(values) for kind, values in sorted(kinds.items())}),
        frozenset(addresses | numbers),
    )


def _is_address(email: str) -> bool:
    """Return whether both sides of the @ are given: a domain alone would match every address of it."""
    name, at, domain = email.rpartition("@")
    return bool(name and at and domain)


def digits_of(phone: str) -> str:
    return re.sub(r"[^0-9]", "", phone)


def text_pattern(person: Identifiers) -> str | None:
    """Return the regular expression, valid in Java and Python, that finds the person in a text; None without emails and phones.

    Emails and phones match as a whole: `ann@example.com` is not in `joann@example.com`, nor in `ann@example.com.au`. They match
    in any case, and as JSON and URLs escape them. All their characters are literal, also `.` and `*`.
    """
    values = sorted({*person.written, *person.emails, *person.phones})
    parts = [f"{_BEFORE}{_spelled(value)}{_AFTER}" for value in values if "@" in value]
    parts += [f"(?<![0-9])(?<![0-9]\\.){_spelled(value)}(?![0-9])" for value in values if "@" not in value]
    return f"(?iu)(?:{'|'.join(parts)})" if parts else None


def _spelled(value: str) -> str:
    """Return an expression for a value: plain, with JSON escapes, or with URL escapes."""
    return "".join(char if char.isascii() and char.isalnum() else _character(char) for char in value)


def _character(char: str) -> str:
    plain = f"\\{char}" if char.isascii() else char
    units = char.encode("utf-16-be")
    escaped = "".join(rf"\\+u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    quoted = "".join(f"%{byte:02x}" for byte in char.encode("utf-8"))
    return rf"(?:\\*{plain}|{escaped}|{quoted})"  # JSON within JSON escapes quotes and backslashes


def conceal(person: str) -> str:
    """Return a salted, slow hash of a person's identifier, different each time."""
    return _hash(person, os.urandom(_SALT_BYTES))


def is_concealed(person: str, concealed: str) -> bool:
    """Return whether a hash of `conceal` belongs to this identifier."""
    parts = concealed.split("$")
    return len(parts) == 3 and _hash(person, bytes.fromhex(parts[1])) == concealed


def _hash(person: str, salt: bytes) -> str:
    digest = hashlib.scrypt(person.strip().lower().encode(), salt=salt, n=2**14, r=8, p=1)
    return f"scrypt${salt.hex()}${digest.hex()}"
