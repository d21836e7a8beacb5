"""Find macro calls in SQL tokens, and decide where an expanded expression needs brackets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

DIALECT = "spark"
_OPEN, _CLOSE = frozenset(("L_PAREN", "L_BRACKET", "L_BRACE")), frozenset(("R_PAREN", "R_BRACKET", "R_BRACE"))
_ENDS_OPERAND = frozenset(("DOT", "ALIAS", "R_PAREN", "R_BRACKET", "IDENTIFIER", "VAR"))
"""Tokens before a name that is not a function: `a.name (`, `AS name (`, `VALUES (1) name (`."""
_BEFORE_OPERAND = frozenset(("BOTH", "LEADING", "TRAILING", "ZONE"))
"""Words before an expression that sqlglot reads as names."""
_STARTS_QUERY = frozenset(("SELECT", "WITH", "L_PAREN", "FROM", "VALUES", "TABLE"))
_BEFORE_WHOLE = frozenset(
    (
        *("L_PAREN", "L_BRACKET", "COMMA", "SELECT", "DISTINCT", "WHERE", "HAVING", "ON", "WHEN", "THEN", "ELSE", "ARROW"),
        *("GROUP_BY", "ORDER_BY", "PARTITION_BY"),
    )
)
_AFTER_WHOLE = frozenset(
    (
        *("R_PAREN", "R_BRACKET", "COMMA", "SEMICOLON", "ALIAS", "FROM", "WHERE", "HAVING", "WHEN", "THEN", "ELSE", "END"),
        *("GROUP_BY", "ORDER_BY", "ASC", "DESC", "UNION"),
    )
)
_PREFIXES = frozenset(("NOT", "DISTINCT", "INTERVAL", "CASE", "DASH", "PLUS", "TILDE"))
_WINDOW_WORDS = frozenset(("OVER", "FILTER", "WITHIN", "IGNORE", "RESPECT"))
"""Keywords that follow an aggregate or window function call and belong to it."""


@dataclass(frozen=True)
class Call:
    """A function call: the tokens before and after it, and its arguments. `end` is None without a closing bracket."""

    name: Token
    before: Token | None
    after: Token | None
    end: int | None
    arguments: tuple[tuple[Token, ...], ...] = ()

    @property
    def start(self) -> int:
        return int(self.name.start)

    @property
    def has_window(self) -> bool:
        return self.after is not None and self.after.text.upper() in _WINDOW_WORDS


def tokenize_sql(text: str) -> list[Token] | None:
    """Return the tokens of SQL, or None if it can't be tokenized, for example because of an unterminated string."""
    import sqlglot

    try:
        return list(sqlglot.tokenize(text, read=DIALECT))
    except sqlglot.TokenError:
        return None


def find_calls(tokens: Sequence[Token], names: Collection[str] | None = None) -> Iterator[Call]:
    """Yield the outermost calls of these functions in order. Without `names`, yield all calls, including nested ones."""
    index = 0
    while index < len(tokens):
        call, after = _call_at(tokens, index, names)
        if call:
            yield call
        index = after if call else index + 1


def _call_at(tokens: Sequence[Token], index: int, names: Collection[str] | None) -> tuple[Call | None, int]:
    token = tokens[index]
    before = tokens[index - 1] if index else None
    opened = index + 1 < len(tokens) and kind(tokens[index + 1]) == "L_PAREN"
    if not opened or kind(token) in ("STRING", "IDENTIFIER") or (names is not None and token.text.lower() not in names):
        return None, index
    if before and kind(before) in _ENDS_OPERAND and before.text.upper() not in _BEFORE_OPERAND:
        return None, index
    close = _matching(tokens, index + 1)
    if close is None:
        return Call(token, before, None, None), len(tokens)
    following = [kind(following_token) for following_token in tokens[close + 1 : close + 4]]
    if following[:2] == ["ALIAS", "L_PAREN"] and following[2:] and following[2] in _STARTS_QUERY:
        return None, index  # the columns of a CTE
    after = tokens[close + 1] if close + 1 < len(tokens) else None
    inner = tuple(split(tokens[index + 2 : close])) if close > index + 2 else ()
    call = Call(token, before, after, int(tokens[close].end) + 1, inner)
    return call, close + 1 if names is not None else index + 1


def split(tokens: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    """Yield the groups of tokens between top-level commas."""
    part: list[Token] = []
    for token, depth in with_depth(tokens):
        if depth == 0 and kind(token) == "COMMA":
            yield tuple(part)
            part = []
        else:
            part.append(token)
    yield tuple(part)


def with_depth(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Yield each token with its bracket depth. A bracket has the depth of its surroundings."""
    depth = 0
    for token in tokens:
        depth -= kind(token) in _CLOSE
        yield token, depth
        depth += kind(token) in _OPEN


def flatten(text: str, tokens: Sequence[Token]) -> str:
    """Return the text of tokens at its original length, with blanks instead of comments and line breaks."""
    parts, at = [], int(tokens[0].start)
    for token in tokens:
        parts += [" " * (int(token.start) - at), text[token.start : token.end + 1]]
        at = int(token.end) + 1
    return "".join(parts)


def is_operand(tokens: Sequence[Token]) -> bool:
    """Return whether an expression is a single operand in any context: a name, a literal, a call, or in brackets."""
    if kind(tokens[0]) in _PREFIXES or len(tokens) == 1:
        return len(tokens) == 1
    if all(kind(token) == "DOT" for token in tokens[1::2]):
        return len(tokens) % 2 == 1
    opened = 0 if kind(tokens[0]) == "L_PAREN" else 1
    return kind(tokens[opened]) == "L_PAREN" and _matching(tokens, opened) == len(tokens) - 1


def needs_no_brackets(before: Token | None, after: Token | None) -> bool:
    """Return whether an expression between two tokens is a whole argument, column or condition, so it needs no brackets."""
    return (before is None or kind(before) in _BEFORE_WHOLE) and (after is None or kind(after) in _AFTER_WHOLE)


def kind(token: Token) -> str:
    return str(token.token_type.name)


def _matching(tokens: Sequence[Token], opened: int) -> int | None:
    for index, (token, depth) in enumerate(with_depth(tokens[opened:])):
        if depth == 0 and kind(token) in _CLOSE:
            return opened + index
    return None
