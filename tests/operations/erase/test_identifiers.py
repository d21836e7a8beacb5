"""A person is found as a whole, in any spelling, and literally: no character of an email is special."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operations.erase.identifiers import conceal, identify, is_concealed, text_pattern

ANN = "ann@example.com"


def finds(email: str, text: str) -> bool:
    pattern = text_pattern(identify(emails=[email]))
    return pattern is not None and re.search(pattern, text) is not None


@pytest.mark.parametrize(
    "text",
    [
        ANN,
        "ANN@Example.COM",
        f"<{ANN}>",
        f"write to {ANN}.",
        json.dumps({"note": f"a line\n{ANN}"}),
        r'{"email": "ann\u0040example.com"}',
        f"https://example.com/?to={quote(ANN)}",
        f"\u3001{ANN}\u3002",
    ],
)
def test_text_pattern_finds_the_person(text: str) -> None:
    assert finds(ANN, text)


@pytest.mark.parametrize(
    "text",
    ["joann@example.com", "ann@example.com.au", "ann@example.community", "ann@examplexcom", "mary-ann@example.com", "ann"],
)
def test_text_pattern_does_not_find_other_persons(text: str) -> None:
    assert not finds(ANN, text)


characters = st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="@")
local = st.text(characters, min_size=1, max_size=12).map(str.strip).filter(bool)


@given(local)
def test_text_pattern_finds_any_email_plain_and_in_json(name: str) -> None:
    email = f"{name}@example.com"
    assert finds(email, f"to {email} ")
    assert finds(email, json.dumps({"a": email}))
    assert finds(email, json.dumps(json.dumps({"a": email}, ensure_ascii=False), ensure_ascii=False))


@given(local, local)
def test_text_pattern_of_an_email_finds_no_other_email(name: str, other: str) -> None:
    if name.lower() != other.lower() and name.upper() != other.upper() and name.casefold() != other.casefold():
        assert not finds(f"{name}@example.com", f"{other}@example.com") or other.lower().endswith(name.lower())


def test_text_pattern_finds_phones_as_written_and_as_digits() -> None:
    pattern = text_pattern(identify(phones=["+1 (555) 010-0000", "12"]))
    assert pattern
    assert re.search(pattern, "call +1 (555) 010-0000 now")
    assert re.search(pattern, "15550100000")
    assert not re.search(pattern, "915550100000")
    assert not re.search(pattern, "12"), "too short to tell anybody"


def test_identify_ignores_empty_values() -> None:
    assert not identify(emails=["", None, "nobody"], phones=["", None, "123"], ids=[("shop", ""), ("shop", None)])
    assert not identify(emails=["@example.com", "\x85@example.com", "ann@ "])
    assert text_pattern(identify(ids=[("shop", "1")])) is None


def test_is_concealed_recognises_only_the_same_person() -> None:
    one, two = conceal(ANN), conceal(ANN)
    assert one != two, "salted"
    assert is_concealed(" Ann@example.com", one)
    assert not is_concealed("bob@example.com", one)
    assert "ann" not in one
