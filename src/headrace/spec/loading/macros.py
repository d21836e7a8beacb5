"""Read the macros of a pipeline from `macros.sql`: `CREATE MACRO name(parameters) AS expression;`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import SpecError
from headrace.spec.loading.document import read_text
from headrace.spec.loading.files import Files
from headrace.spec.loading.names import IDENTIFIER_RULE, is_identifier
from headrace.spec.problems import Place, Problems
from headrace.spec.sql.macro_body import read_body
from headrace.spec.sql.macro_expansion import Macro, Macros
from headrace.spec.sql.macro_tokens import find_calls, kind, split, tokenize_sql
from headrace.spec.sql.source_map import locate
from headrace.spec.sql.spark_words import spark_words

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

MACROS = "macros.sql"
_NAME_IN_QUOTES = re.compile(r"""["'](\w+)["']""")
_FORM = "CREATE MACRO name(a, b) AS expression;"


def read_macros(files: Files, *, argument: str, problems: Problems) -> Macros:
    """Return the macros of a pipeline's folder, none if it has no macros.sql. Errors are collected in `problems`."""
    path, registered = files.pipeline_folder / MACROS, _find_registered(files.pipeline_folder)
    if not path.exists():
        return Macros(registered=registered)
    place = files.place(path, argument=argument)
    text = problems.attempt(read_text, path, place=place)
    if text is None:
        return Macros(is_whole=False)
    return parse_macros(text, place=place, problems=problems, registered=registered)


def _find_registered(folder: Path) -> frozenset[str]:
    """Return all names in string literals of Python files, in lower case: any of them may be registered as a function."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in folder.rglob("*.py"))
    return frozenset(name.lower() for text in texts for name in _NAME_IN_QUOTES.findall(text))


def parse_macros(text: str, *, place: Place, problems: Problems, registered: frozenset[str] = frozenset()) -> Macros:
    """Return the macros of a text, with calls of other macros expanded in their bodies. Errors are collected in `problems`."""
    tokens = tokenize_sql(text)
    if tokens is None:
        problems.errors.append(place.error("unterminated string or comment", line=1, fix="Close the quote or the comment"))
        return Macros(is_whole=False)
    reader = _Reader(text, place, problems, registered)
    for is_end, statement in groupby(tokens, lambda token: kind(token) == "SEMICOLON"):
        if not is_end:
            problems.attempt(reader.define, tuple(statement))
    return reader.resolve()


@dataclass(frozen=True)
class _Definition:
    name: Token
    parameters: tuple[Token, ...]
    body: tuple[Token, ...]


@dataclass
class _Reader:
    """The definitions of a file, and the macros that they resolve to, each after the macros that it calls."""

    text: str
    place: Place
    problems: Problems
    registered: frozenset[str] = frozenset()
    definitions: dict[str, _Definition] = field(default_factory=dict)
    done: dict[str, Macro | None] = field(default_factory=dict)
    is_whole: bool = True

    def define(self, tokens: Sequence[Token]) -> None:
        """Add the definition in a statement."""
        words = [token.text.upper() for token in tokens]
        if words[:2] != ["CREATE", "MACRO"] or len(tokens) < 3:
            self.is_whole = False
            raise self._error("not a macro definition", tokens[0], fix=f"Write {_FORM}")
        name = tokens[2]
        definition = None
        before = len(self.problems.errors)
        try:
            self._check_name(name)
            definition = self._read(name, tokens[3:])
        finally:
            if definition is None or len(self.problems.errors) > before:
                self.done.setdefault(name.text.lower(), None)
        self.definitions[name.text] = definition

    def resolve(self) -> Macros:
        """Return the macros with the calls in their bodies replaced."""
        for name in self.definitions:
            self._resolve(name, ())
        right = {name: macro for name, macro in self.done.items() if macro is not None}
        return Macros(right, frozenset(self.done) - right.keys(), self.is_whole, self.registered)

    def _check_name(self, token: Token) -> None:
        name = token.text
        if name.lower() in self.definitions:
            first = locate(self.text, int(self.definitions[name.lower()].name.start)).line
            raise self._error(f'macro "{name}" is already defined in line {first}', token, fix="Rename one of them")
        if name.lower() in spark_words():
            what = f'"{name}" is a function or keyword of Spark, and a macro can\'t replace it'
            raise self._error(what, token, fix="Rename the macro")
        if not is_identifier(name):
            raise self._error(f'"{name}" is not a valid macro name', token, fix=f"Rename it: {IDENTIFIER_RULE}")

    def _read(self, name: Token, tokens: Sequence[Token]) -> _Definition:
        close = next((index for index, token in enumerate(tokens) if kind(token) == "R_PAREN"), None)
        if not tokens or kind(tokens[0]) != "L_PAREN" or close is None:
            what = f'macro "{name.text}" has no parameter list'
            raise self._error(what, name, fix=f"Write {_FORM} Use () for no parameters")
        if close + 1 >= len(tokens) or kind(tokens[close + 1]) != "ALIAS" or close + 2 >= len(tokens):
            raise self._error(f'macro "{name.text}" has no body', tokens[close], fix=f"Write AS and an expression: {_FORM}")
        parameters: dict[str, Token] = {}
        for part in split(tokens[1:close]) if close > 1 else ():
            if len(part) != 1 or not is_identifier(part[0].text) or kind(part[0]) in ("STRING", "IDENTIFIER"):
                what = f'invalid parameter of macro "{name.text}": a parameter is a plain name'
                raise self._error(what, (part or tokens)[0], fix=f"Use {IDENTIFIER_RULE}, without a type or a default")
            if part[0].text in parameters:
                raise self._error(f'duplicate parameter "{part[0].text}"', part[0], fix="Rename one of them")
            parameters[part[0].text] = part[0]
        return _Definition(name, tuple(parameters.values()), tuple(tokens[close + 2 :]))

    def _resolve(self, name: str, path: tuple[str, ...]) -> None:
        if name in self.done:
            return
        definition = self.definitions[name]
        for call in _calls(definition.body, self.definitions):
            called = call.text.lower()
            if called in (*path, name):
                circle = (*path, name)[(*path, name).index(called) :]
                what = f"circular macro calls: {' → '.join((*circle, called))}"
                self.problems.errors.append(self._error(what, call, fix="Remove one of the calls"))
                self.done |= dict.fromkeys(circle)
            else:
                self._resolve(called, (*path, name))
        if name not in self.done:
            self.done[name] = self._macro(definition)

    def _macro(self, definition: _Definition) -> Macro | None:
        known = Macros(
            {name: macro for name, macro in self.done.items() if macro is not None},
            frozenset(name for name, macro in self.done.items() if macro is None),
            self.is_whole,
            self.registered,
        )
        name, refuse = definition.name.text, partial(_refuse, self.text, self.place)
        errors: list[SpecError] = []
        pieces = known.expand_tokens(self.text, definition.body, refuse=refuse, errors=errors)
        self.problems.errors += errors
        if pieces is None or errors:
            return None
        line = locate(self.text, int(definition.name.start)).line
        parameters = tuple(token.text for token in definition.parameters)
        unbound = Macro(name, parameters, f"{self.place.label}:{line}", "")
        return read_body(unbound, pieces, text=self.text, place=self.place, problems=self.problems)

    def _error(self, what: str, token: Token, *, fix: str) -> SpecError:
        return _refuse(self.text, self.place, what, int(token.start), fix)


def _refuse(text: str, place: Place, what: str, offset: int, fix: str) -> SpecError:
    location = locate(text, offset)
    return place.error(what, line=location.line, column=location.column, fix=fix)


def _calls(tokens: Sequence[Token], definitions: dict[str, _Definition]) -> Iterator[Token]:
    """Yield the names of the macros that a body calls, including calls in arguments of other macros."""
    return (call.name for call in find_calls(tokens) if call.name.text.lower() in definitions)
