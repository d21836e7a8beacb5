"""Split a SELECT into clauses by its tokens, so that their text can be reused unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spec.sql.queries import DIALECT

if TYPE_CHECKING:
    from sqlglot import Token

_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")
_AFTER_GROUP = ("HAVING", "QUALIFY", "WINDOW", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "LIMIT", "OFFSET", ";")


@dataclass(frozen=True)
class Span:
    """One or more consecutive tokens of a text."""

    text: str
    tokens: tuple[Token, ...]

    @property
    def sql(self) -> str:
        """The original text from the first token to the last."""
        return self.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def part(self, start: int, end: int) -> Span | None:
        return Span(self.text, self.tokens[start:end]) if start < end else None

    def words(self, sources: Sequence[str] = ()) -> tuple[tuple[str, bool], ...]:
        """Return the tokens in a comparable form: in lower case, without quotes of names and without the names of `sources`."""
        words: list[tuple[str, bool]] = []
        for token in self.tokens:
            if token.text == "." and words and words[-1] in [(name, False) for name in sources]:
                words.pop()
                continue
            words.append((token.text, True) if _is_text(token) else (token.text.lower(), False))
        return tuple(words)


@dataclass(frozen=True)
class Clauses:
    """The items of the SELECT list, the keys of GROUP BY, the HAVING clause with its keyword, and the offset of FROM."""

    items: tuple[Span, ...]
    keys: tuple[Span, ...]
    having: Span | None
    from_at: int


def read_clauses(text: str) -> Clauses | None:
    """Return the clauses of the outermost SELECT of a query, or None if there are several, or none with FROM."""
    import sqlglot

    tokens = tuple(sqlglot.tokenize(text, read=DIALECT))
    outer = [(index, token.text.upper()) for index, token in outermost(tokens) if token.token_type.name != "IDENTIFIER"]
    selects = [index for index, word in outer if word == "SELECT"]
    starts = [index for index, _ in outer if _is_from(tokens, index) and selects and index > selects[0]]
    if len(selects) != 1 or not starts:
        return None

    def clause(name: str, *, skip: int) -> Span | None:
        """Return the tokens from a keyword, or after it, up to the next clause."""
        start = next((index for index, word in outer if word == name), len(tokens))
        end = next((index for index, word in outer if index > start and word in _AFTER_GROUP), len(tokens))
        return Span(text, tokens).part(start + skip, end)

    grouped = clause("GROUP BY", skip=1)
    keys = tuple(split_commas(grouped)) if grouped else ()
    listed = Span(text, tokens[selects[0] + 1 : starts[0]])
    return Clauses(tuple(split_commas(listed)), keys, clause("HAVING", skip=0), tokens[starts[0]].start)


def outermost(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside brackets with their indexes, without the brackets themselves."""
    depth = 0
    for index, token in enumerate(tokens):
        step = _step(token)
        depth += step
        if depth == 0 and not step and not _is_text(token):
            yield index, token


def split_commas(span: Span) -> Iterator[Span]:
    """Yield the parts between the commas outside brackets."""
    start = 0
    commas = [index for index, token in outermost(span.tokens) if token.text == ","]
    for end in (*commas, len(span.tokens)):
        part = span.part(start, end)
        if part:
            yield part
        start = end + 1


def closing(tokens: Sequence[Token], start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += _step(tokens[index])
        if depth == 0:
            return index
    raise ValueError("unbalanced brackets in a parsed query")


def _step(token: Token) -> int:
    return 0 if _is_text(token) else (token.text in _OPEN) - (token.text in _CLOSE)


def _is_text(token: Token) -> bool:
    return token.token_type.name.endswith("STRING")


def _is_from(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a token starts the FROM clause, unlike the FROM of IS DISTINCT FROM."""
    before = tokens[index - 1].text.upper() if index else ""
    return tokens[index].text.upper() == "FROM" and before != "DISTINCT"
