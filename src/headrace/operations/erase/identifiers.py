"""What tells a person apart: emails, phones and ids, and how they are found in text. Pure: no session, no I/O."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

SHORTEST_PHONE = 7
"""Digits that a phone must have to be looked for: a shorter number stands in too many rows that are another's."""

SHORTEST_ID = 8
"""Characters that an id must have to be looked for as a value of any column, and not only where the pipeline declares it."""

_LETTERS = r"0-9A-Za-z_\u00c0-\u024f\u0370-\u1fff"
_BEFORE = rf"(?:(?<![{_LETTERS}.%+\-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{{4}}))"
_AFTER = rf"(?![{_LETTERS}\-])(?!\.[{_LETTERS}])"
_SALT_BYTES = 16


@dataclass(frozen=True)
class Identifiers:
    """All that tells one person: emails in lower case, phones as digits, and ids by what gave them (`shopify`, `stripe`).

    `written` are emails and phones as they stand in rows, to be looked for in text.
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
        """Return the identifiers without these emails and phones, however they are written."""
        emails = {each.strip().lower() for each in written}
        phones = {digits_of(each) for each in written if "@" not in each}
        kept = {each for each in self.written if each.lower() not in emails and digits_of(each) not in phones - {""}}
        return replace(self, emails=self.emails - emails, phones=self.phones - phones, written=frozenset(kept))

    def __bool__(self) -> bool:
        return bool(self.emails or self.phones or any(self.ids.values()))

    @property
    def long_ids(self) -> frozenset[str]:
        """The ids that are told apart from any other value by their length alone."""
        return frozenset(each for ids in self.ids.values() for each in ids if len(each) >= SHORTEST_ID)


def identify(
    *, emails: Iterable[str | None] = (), phones: Iterable[str | None] = (), ids: Iterable[tuple[str, str | None]] = ()
) -> Identifiers:
    """Return the identifiers of values as they are written; what is empty tells nobody apart and is left out."""
    kinds: dict[str, set[str]] = {}
    for kind, value in ids:
        if value and value.strip():
            kinds.setdefault(kind, set()).add(value.strip())
    addresses = {each.strip() for each in emails if each and _is_address(each.strip())}
    numbers = {each.strip() for each in phones if each and len(digits_of(each)) >= SHORTEST_PHONE}
    return Identifiers(
        frozenset(each.lower() for each in addresses),
        frozenset(digits_of(each) for each in numbers),
        MappingProxyType({kind: frozenset(values) for kind, values in sorted(kinds.items())}),
        frozenset(addresses | numbers),
    )


def _is_address(email: str) -> bool:
    """Return whether both sides of the @ are given: a domain alone would match everybody who has an address there."""
    name, at, domain = email.rpartition("@")
    return bool(name and at and domain)


def digits_of(phone: str) -> str:
    return re.sub(r"[^0-9]", "", phone)


def text_pattern(person: Identifiers) -> str | None:
    """Return the regular expression, Java's and Python's alike, that finds the person in a text; None where nothing could.

    Emails and phones are found whole: `ann@example.com` is not in `joann@example.com`, nor in `ann@example.com.au`. They are
    found in any case, and as JSON and URLs write them. No character of theirs means anything: not `.`, not `*`.
    """
    values = sorted({*person.written, *person.emails, *person.phones})
    parts = [f"{_BEFORE}{_spelled(each)}{_AFTER}" for each in values if "@" in each]
    parts += [f"(?<![0-9])(?<![0-9]\\.){_spelled(each)}(?![0-9])" for each in values if "@" not in each]
    return f"(?iu)(?:{'|'.join(parts)})" if parts else None


def _spelled(value: str) -> str:
    """Return an expression for a value: as it is, with JSON's escapes, or with a URL's."""
    return "".join(each if each.isascii() and each.isalnum() else _character(each) for each in value)


def _character(each: str) -> str:
    plain = f"\\{each}" if each.isascii() else each
    units = each.encode("utf-16-be")
    escaped = "".join(rf"\\+u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    quoted = "".join(f"%{byte:02x}" for byte in each.encode("utf-8"))
    return rf"(?:\\*{plain}|{escaped}|{quoted})"  # JSON in JSON puts backslashes before quotes and before backslashes


def conceal(person: str) -> str:
    """Return a text that only who knows the person can tell: a salted, slow hash, different each time."""
    return _hash(person, os.urandom(_SALT_BYTES))


def is_concealed(person: str, concealed: str) -> bool:
    """Return whether a concealed text is of this person."""
    parts = concealed.split("$")
    return len(parts) == 3 and _hash(person, bytes.fromhex(parts[1])) == concealed


def _hash(person: str, salt: bytes) -> str:
    made = hashlib.scrypt(person.strip().lower().encode(), salt=salt, n=2**14, r=8, p=1)
    return f"scrypt${salt.hex()}${made.hex()}"
