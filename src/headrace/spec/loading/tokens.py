"""Tokenize DDL: words, signs and literals, each with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from headrace.errors import SpecError
from headrace.spec.problems import Place

PATTERN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |`(?P<quoted>(?:[^`]|``)*)`
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<word>[^\W\d]\w*)
    |(?P<number>[0-9]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int

    @property
    def keyword(self) -> str:
        """The word or sign in upper case; empty for a name in backticks and for a literal."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


@dataclass
class Tokens:
    """A cursor over tokens. The last token is of kind "end"."""

    tokens: list[Token]
    place: Place
    position: int = field(default=0)

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        """Return the next token and advance past it."""
        token = self.next
        self.position += token.kind != "end"
        return token

    def skip(self, *keywords: str) -> bool:
        """Advance past these words or signs if they come next, and return whether they did."""
        following = self.tokens[self.position : self.position + len(keywords)]
        if tuple(token.keyword for token in following) != keywords:
            return False
        self.position += len(keywords)
        return True

    def skip_item(self) -> None:
        """Advance to the comma after this list item, or to the end of the list. Skip everything in brackets."""
        depth = 0
        while self.next.kind != "end":
            sign = self.next.keyword
            if depth == 0 and sign in (",", ")"):
                return
            depth += (sign in ("(", "<")) - (sign in (")", ">") and depth > 0)
            self.take()

    def expect(self, sign: str) -> None:
        """Advance past a required word or sign."""
        if not self.skip(sign):
            self.fail(f'expected "{sign}", found "{self.next.text}"', fix="Fix the line")

    def error(self, what: str, *, at: Token, fix: str) -> SpecError:
        return self.place.error(what, line=at.line, fix=fix)

    def fail(self, what: str, *, fix: str) -> NoReturn:
        """Raise the SpecError for the next token's line."""
        raise self.error(what, at=self.next, fix=fix)


def tokenize(text: str, *, place: Place) -> Tokens:
    """Return the tokens of a text without spaces and comments."""
    tokens, line = [], 1
    for match in PATTERN.finditer(text):
        kind = match.lastgroup or "sign"
        if kind != "space":
            tokens.append(Token(kind, match[kind].replace("``", "`") if kind == "quoted" else match[0], line))
        line += match[0].count("\n")
    last = tokens[-1].line if tokens else 1
    return Tokens([*tokens, Token("end", "the end of the file", last)], place)
