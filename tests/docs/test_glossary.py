"""The glossary's words are the words of the code, and other words for the same things are not used."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.blocks import DOCS, ROOT

GLOSSARY = DOCS / "reference" / "glossary.md"
WORDS = [
    word
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines()
    if line.startswith("| **")
    for word in line.split("**")[1:2]
]
SYNONYMS = {
    "raw table": ("landing table", "bronze table"),
    "layer table": ("derived table", "silver table", "gold table"),
    "quarantine": ("dead letter", "dead-letter", "error table"),
    "commit log": ("write ahead log", "journal file"),
    "increment": ("delta build", "partial build"),
    "refresh": ("full rebuild of a table", "complete rebuild"),
    "driver": ("driving table", "base table", "main table"),
    "lookup": ("dimension table", "side table"),
    "touched keys": ("affected keys", "dirty keys", "changed keys"),
    "file index": ("key index", "hash index"),
    "partial state": ("intermediate state of an aggregate", "accumulator state"),
    "expectation": ("data test", "quality rule", "constraint check"),
    "freshness": ("staleness",),
    "target lag": ("freshness target", "lag target"),
    "orphan file": ("dangling file", "stray file", "leftover file"),
    "erasure": ("right to be forgotten run", "purge of a person"),
    "control room": ("web console", "admin ui"),
}
TEXTS = [ROOT / "README.md", *DOCS.rglob("*.md"), *ROOT.joinpath("src", "headrace").rglob("*.py")]


@cache
def code() -> str:
    files = sorted(ROOT.joinpath("src", "headrace").rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files).lower().replace("_", " ")


def spellings(word: str) -> re.Pattern[str]:
    """Match a word in the singular and the plural, with spaces or hyphens, or as the name of a class."""
    return re.compile(rf"\b{re.sub('[ -]', '[ -]?', word)}(?:s|es)?\b")


def other_words(text: str) -> list[str]:
    """Return the words of a text for which the glossary has another one."""
    plain = " ".join(text.lower().split())
    return [word for words in SYNONYMS.values() for word in words if re.search(rf"\b{word}\b", plain)]


def test_glossary_is_short_and_explains_each_word_once() -> None:
    assert 35 <= len(WORDS) <= 45
    assert len(set(WORDS)) == len(WORDS)
    assert set(SYNONYMS) <= set(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_code_uses_a_word(word: str) -> None:
    assert spellings(word).search(code())


def test_no_text_uses_another_word() -> None:
    words_by_page = {str(path.relative_to(ROOT)): other_words(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert {path: words for path, words in words_by_page.items() if words} == {}


def test_another_word_is_noticed() -> None:
    assert other_words("Rows go to the\n  Dead letter queue.") == ["dead letter"]
