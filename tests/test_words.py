"""Retired words and names stay out of code, docs and messages: docs/reference/glossary.md has the words in use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from headrace.cli import app

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".html", ".js", ".toml"}
"""SQL and YAML of pipelines are left out: their texts are part of table definitions, and a change would rebuild tables."""

NAMES = (
    *("Patience", "patiently", "away_if_broken", "Idleness", "Whose", "Look", "Glance", "Room", "Desk", "Keeper", "Known"),
    *("landed_aside", "place_few", "place_many", "work_of", "whole_work", "untold"),
)
"""Names of code that is gone. Some are words of English, so only code is searched for them."""

PHRASES = (
    *("gives back", "hold the lake against", "held against", "what becomes of", "what became of"),
    *("come along by themselves", "comes along by itself", "who only looks", "rows are not so", "can't both be"),
    *("something is asked for that there is not", "only those may look", "kafka refuses who asks"),
    *("which are some and all that they read", "less is how a flow breathes", "that nobody says the meaning of"),
)

DOCS_PHRASES = (
    *("anew", "those that", "by itself", "by themselves", "is told", "are told", "who looks", "whoever", "whose is it"),
    *("becomes of", "it is that", "such ones", "not so"),
)
"""Phrases that make readers of the documentation read a sentence twice."""

_NAME = re.compile(rf"\b(?:{'|'.join(NAMES)})\b")
_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
_DOCS_PHRASE = re.compile(rf"\b(?:{'|'.join(DOCS_PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
_STRING_OR_COMMENT = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'|#.*')


def retired(text: str, *, is_code: bool) -> list[str]:
    """Return the retired words of a text, and the retired names if it is code."""
    names = _NAME.findall(_STRING_OR_COMMENT.sub("", re.sub(r'""".*?"""', "", text, flags=re.DOTALL))) if is_code else []
    return [*names, *_PHRASE.findall(text)]


def _files() -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder in ("src", "docs"):
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES)


def test_code_and_docs_have_no_retired_words() -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in _files()
        if (words := retired(path.read_text(encoding="utf-8"), is_code=path.suffix == ".py"))
    }
    assert not found, "write these in the words of docs/reference/glossary.md"


def test_docs_read_easily() -> None:
    readmes = sorted((ROOT / "src" / "headrace" / "pipelines").glob("*/README.md"))
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *readmes]
    texts = {path: path.read_text(encoding="utf-8") for path in pages if path.name != "performance.md"}
    found = {str(path.relative_to(ROOT)): _DOCS_PHRASE.findall(text) for path, text in texts.items()}
    assert {page: phrases for page, phrases in found.items() if phrases} == {}, "write a short sentence with a concrete subject"


def test_help_has_no_retired_words() -> None:
    command = get_command(app)
    texts = [command.help or ""]
    for sub in command.commands.values():  # type: ignore[attr-defined]
        texts += [sub.help or "", *(getattr(option, "help", None) or "" for option in sub.params)]
    assert len(texts) > 100
    assert not retired("\n".join(texts), is_code=False)


@pytest.mark.parametrize(
    ("text", "is_code"),
    [("policy = Patience()", True), ('"""Gives back the\n    lake."""', True), ("Hold the lake against its topics", False)],
)
def test_planted_word_is_found(text: str, is_code: bool) -> None:
    assert retired(text, is_code=is_code)


def test_name_in_prose_is_no_retired_name() -> None:
    assert not retired('"""Look at the Room."""\nname = "Known"  # Look', is_code=True)
