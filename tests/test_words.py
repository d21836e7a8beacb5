"""Retired words and names stay out of code, docs and messages: docs/reference/glossary.md has the words in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from headrace.cli import app

ROOT = Path(__file__).parents[1]
SUFFIXES = frozenset((".py", ".md", ".html", ".js", ".toml"))
"""SQL and YAML of pipelines are left out: their texts are part of table definitions, and a change would rebuild tables."""

NAMES = (
    *(
        "Patience",
        "patiently",
        "away_if_broken",
        "Idleness",
        "Whose",
        "What",
        "Look",
        "Glance",
        "Room",
        "Desk",
        "Keeper",
        "Known",
    ),
    *("Way", "ways", "landed_aside", "place_few", "place_many", "work_of", "whole_work", "untold", "carry", "each"),
    *("meant", "reach", "settle", "found", "made", "kept", "told", "mended", "pond", "shelf", "club", "dying", "anew"),
)
"""Names that must not be used for variables, functions, classes, parameters or fields, with and without leading underscores."""

EXCLUDED = {Path(__file__), *(ROOT / "src/headrace/pipelines").glob("*/reference/*.py")}
"""This file, which has all words, and shipped Python tables: the text of a table's file is its definition, and a change would
rebuild the table."""

ALLOWED_NAMES = {
    "src/headrace/build/entities/similarity.py": {"reach"},  # the distance within which characters of two names match
    "src/headrace/build/windows.py": {"reach"},  # the rows that a window covers
    "src/headrace/operations/replay/compare.py": {"kept"},  # a count in the output of `replay --json`
}

MODULES = (
    *("words", "proving", "by_hand", "comparing", "away", "asking", "mended", "mending", "test_looking", "test_glance"),
    *("utils", "helpers"),
)

PHRASES = (
    *("gives back", "hold the lake against", "held against", "hold against", "what became of", "becomes of", "who looks"),
    *("come along by themselves", "comes along by itself", "rows are not so", "can't both be", "who only looks"),
    *("is asked for that there is not", "that there is not", "that there are not", "only those may look"),
    *("kafka refuses who asks", "which are some and all that they read", "less is how a flow breathes"),
    *("that nobody says the meaning of", "keep it from those", "these can't both", "is told", "are told"),
    *("anew", "those that", "by itself", "by themselves"),
)
DOCS_PHRASES = ("whoever", "whose is it", "it is that", "such ones", "not so")
"""Phrases that make readers of the documentation read a sentence twice."""


def _pattern(phrases: Collection[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b".replace(" ", r"\s+"), re.IGNORECASE)


_PHRASE, _DOCS_PHRASE = _pattern(PHRASES), _pattern((*PHRASES, *DOCS_PHRASES))

_ARTICLE = re.compile(r"^\s*(?:async )?def (test_(?:a|an|the)_\w+)", re.MULTILINE)


def retired_names(source: str) -> set[str]:
    """Return the retired names that Python source binds, and `Gives` for each docstring that begins with it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name):
                names.add(name)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (ast.get_docstring(node) or "").startswith(
            "Gives"
        ):
            names.add("Gives")
    return {name for name in names if name.lstrip("_") in (*NAMES, "Gives")}


def retired_phrases(text: str, *, in_docs: bool = False) -> list[str]:
    """Return the retired phrases of a text."""
    return (_DOCS_PHRASE if in_docs else _PHRASE).findall(text)


def _files(*roots: str, suffixes: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file below these folders."""
    for root in roots:
        for path in sorted((ROOT / root).rglob("*")):
            if path.suffix in suffixes and path not in EXCLUDED:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_code_binds_no_retired_names() -> None:
    names = {
        path: retired - ALLOWED_NAMES.get(path, set())
        for path, text in _files("src", "tests", "benchmarks", "scripts", suffixes={".py"})
        if (retired := retired_names(text))
    }
    assert {path: retired for path, retired in names.items() if retired} == {}, "name these after what they hold"


def test_names_of_tests_begin_without_an_article() -> None:
    names = {path: articles for path, text in _files("tests", suffixes={".py"}) if (articles := _ARTICLE.findall(text))}
    assert names == {}, "name tests after a behaviour: test_changed_output_is_noticed"


def test_modules_have_no_retired_names() -> None:
    paths = [path for path, _ in _files("src", "tests", "benchmarks", "scripts", suffixes={".py"})]
    assert len(paths) > 1000
    assert [path for path in paths if Path(path).stem in MODULES] == []


def test_texts_have_no_retired_phrases() -> None:
    texts = dict(_files("src", "tests", "benchmarks", "scripts", suffixes=SUFFIXES))
    texts |= {"CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")}
    assert {path: retired for path, text in texts.items() if (retired := retired_phrases(text))} == {}


def test_docs_read_easily() -> None:
    texts = dict(_files("docs", "src/headrace/pipelines", suffixes={".md"}))
    texts |= {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    phrases = {path: retired for path, text in texts.items() if (retired := retired_phrases(text, in_docs=True))}
    assert phrases == {}, "write a short sentence with a concrete subject"


def test_help_has_no_retired_phrases() -> None:
    command = get_command(app)
    texts = [command.help or ""]
    for sub in command.commands.values():  # type: ignore[attr-defined]
        texts += [sub.help or "", *(getattr(option, "help", None) or "" for option in sub.params)]
    assert len(texts) > 100
    assert retired_phrases("\n".join(texts)) == []


@pytest.mark.parametrize("name", [*NAMES, *(f"_{name}" for name in NAMES)])
@pytest.mark.parametrize(
    "source",
    ["{} = 1", "class {}: pass", "def {}(): pass", "def f({}): pass", "[1 for {} in ()]", "for {} in (): pass", "self.{} = 1"],
)
def test_planted_name_is_reported(source: str, name: str) -> None:
    assert retired_names(source.format(name)) == {name}


@pytest.mark.parametrize("phrase", [*PHRASES, *DOCS_PHRASES])
def test_planted_phrase_is_reported(phrase: str) -> None:
    assert retired_phrases(f"Then, {phrase.upper()}.", in_docs=True)
    broken = phrase.replace(" ", "\n    ", 1)
    assert retired_phrases(f"Then {broken} it.", in_docs=phrase in DOCS_PHRASES)
    assert retired_phrases("Then, the words of the field.", in_docs=True) == []


def test_planted_article_is_reported() -> None:
    assert _ARTICLE.findall("def test_a_build_is_one_line():\n    pass\ndef test_alike():") == ["test_a_build_is_one_line"]


def test_planted_docstring_is_reported() -> None:
    assert retired_names('def f():\n    """Gives the lake."""') == {"Gives"}


def test_names_in_prose_are_not_reported() -> None:
    assert retired_names('"""Look at the Room, each of them."""\nname = "Known"  # Look\nprint(each.what)') == set()
