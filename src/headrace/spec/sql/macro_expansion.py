"""Expand macro calls: replace each call by the macro's body, and the parameters by the arguments."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from headrace.errors import SpecError
from headrace.spec.sql.macro_tokens import (
    Call,
    find_calls,
    flatten,
    is_operand,
    kind,
    needs_no_brackets,
    tokenize_sql,
    with_depth,
)
from headrace.spec.sql.source_map import Piece, SourceMap
from headrace.spec.sql.spark_words import spark_words

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

LARGEST, LARGEST_BODY = 500_000, 20_000
"""The maximum length of an expanded query and of an expanded macro body. Repeated arguments grow with every level."""
_INVALID_PARTS = {"ARROW": "a lambda", "FARROW": "a named argument", "ALIAS": "an alias"}
_INVALID_STARTS = {
    "SELECT": "a query without brackets",
    "WITH": "a query without brackets",
    "DISTINCT": "DISTINCT",
    "ALL": "ALL",
}
Refuse = Callable[[str, int, str], SpecError]
"""A function that returns a SpecError for a text: what is wrong, the offset, and what to do."""


@dataclass(frozen=True)
class Use:
    """A use of a parameter in a macro's body: characters `start` up to, not including, `end`."""

    parameter: str
    start: int
    end: int
    is_whole: bool


@dataclass(frozen=True)
class Macro:
    """A macro with other macros expanded in its body. `variables` are the body's lambda variables with their positions."""

    name: str
    parameters: tuple[str, ...]
    where: str
    body: str
    uses: tuple[Use, ...] = ()
    variables: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"

    @property
    def origin(self) -> str:
        """The macro's name and location in errors."""
        return f'macro "{self.name}", {self.where}'

    def apply(self, arguments: Mapping[str, Sequence[Piece]], *, words: Collection[str], start: int, bare: bool) -> list[Piece]:
        """Return the body with the arguments filled in. Lambda variables in `words`, the arguments' names, are renamed.

        With `bare`, the call needs no brackets in its context.
        """
        edits: list[tuple[int, int, list[Piece]]] = []
        for use in self.uses:
            argument = list(arguments[use.parameter])
            if not use.is_whole and not _is_operand(argument):
                argument = [Piece("(", start, self.origin), *argument, Piece(")", start, self.origin)]
            edits.append((use.start, use.end, argument))
        for old, new in _rename(self.variables, words).items():
            edits += [(begin, end, [Piece(new, start, self.origin)]) for begin, end in self.variables[old]]
        pieces, at = [], 0
        for begin, end, replacement in sorted(edits, key=lambda edit: edit[0]):
            pieces += [Piece(self.body[at:begin], start, self.origin), *replacement]
            at = end
        pieces.append(Piece(self.body[at:], start, self.origin))
        if not bare and not _is_operand(pieces):
            pieces = [Piece("(", start, self.origin), *pieces, Piece(")", start, self.origin)]
        return [piece for piece in pieces if piece.text]


@dataclass(frozen=True)
class Expanded:
    """SQL with macros expanded, and the map to its original text, None if there was no call."""

    text: str
    origin: SourceMap | None = None


@dataclass(frozen=True)
class Macros:
    """The macros of a pipeline by name. Calls of `broken` macros, which have errors of their own, are not errors.

    `registered` are the names in string literals of the pipeline's Python files, which may register them as functions.
    """

    by_name: Mapping[str, Macro] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    is_whole: bool = True
    registered: frozenset[str] = frozenset()

    def expand(self, text: str, *, refuse: Refuse, errors: list[SpecError]) -> Expanded | None:
        """Return the text with every macro call expanded, or None if a call has an error, which is added to `errors`.

        Line numbers are preserved: an expansion ends with as many line breaks as the call has.
        """
        tokens = tokenize_sql(text)
        if not tokens:
            return Expanded(text)  # the parser reports invalid SQL
        expansion = _Expansion(text, self, refuse, errors)
        before = len(errors)
        errors += expansion.unknown(tokens)
        pieces = expansion.expand(tokens, 0, len(text), keep_lines=True)
        if pieces is None or len(errors) > before:
            return None
        expanded = "".join(piece.text for piece in pieces)
        return Expanded(text) if expanded == text else Expanded(expanded, SourceMap(text, tuple(pieces)))

    def expand_tokens(
        self, text: str, tokens: Sequence[Token], *, refuse: Refuse, errors: list[SpecError]
    ) -> list[Piece] | None:
        """Return the expression in these tokens, on one line and with every macro call expanded."""
        expansion = _Expansion(text, self, refuse, errors, LARGEST_BODY)
        errors += expansion.unknown(tokens)
        return expansion.expand(tokens, int(tokens[0].start), int(tokens[-1].end) + 1, keep_lines=False)


@dataclass(frozen=True)
class _Expansion:
    text: str
    macros: Macros
    refuse: Refuse
    errors: list[SpecError]
    largest: int = LARGEST

    def expand(self, tokens: Sequence[Token], start: int, end: int, *, keep_lines: bool) -> list[Piece] | None:
        """Return the pieces of the text from `start` to `end`, which has these tokens, or None if a call has an error."""
        pieces: list[Piece] = []
        flat = "" if keep_lines or not tokens else flatten(self.text, tokens)
        is_right, at = True, start
        for call in find_calls(tokens, {*self.macros.by_name, *self.macros.broken}):
            replacement = self._replace(call)
            if replacement is None or call.end is None:
                is_right = False
                continue
            pieces += [
                Piece(self.text[at : call.start] if keep_lines else flat[at - start : call.start - start], at),
                *replacement,
            ]
            lines = self.text.count("\n", call.start, call.end) if keep_lines else 0
            if lines:
                pieces.append(Piece("\n" * lines, call.start, self.macros.by_name[call.name.text.lower()].origin))
            at = call.end
        pieces.append(Piece(self.text[at:end] if keep_lines else flat[at - start :], at))
        pieces = [piece for piece in pieces if piece.text]
        if is_right and sum(len(piece.text) for piece in pieces) > self.largest:
            self._keep(
                f"macros expand this to more than {self.largest:,} characters", start, "Repeat arguments less often in macros"
            )
            return None
        return pieces if is_right else None

    def unknown(self, tokens: Sequence[Token]) -> Iterator[SpecError]:
        """Yield an error for each call of an unknown function: not in Spark, not a macro, and not registered by a Python file.

        Functions of a catalog, whose names contain dots, and quoted names are left to Spark.
        """
        macros = [*self.macros.by_name, *self.macros.broken]
        known = {*macros, *self.macros.registered, *spark_words()}
        aliases = {int(third.start) for first, third in zip(tokens, tokens[2:], strict=False) if kind(first) == "DOT"}
        for call in find_calls(tokens) if self.macros.is_whole else ():
            name, before = call.name.text.lower(), call.before.text.upper() if call.before else ""
            is_table = call.start in aliases or before in ("WITH", "RECURSIVE")  # `FROM a.b name (x)`, `WITH name (x)`
            if name in known or kind(call.name) != "VAR" or is_table:
                continue
            close = difflib.get_close_matches(name, macros, n=1) or difflib.get_close_matches(name, known, n=1, cutoff=0.75)
            hint = f'Did you mean "{close[0]}"? Fix the name' if close else "Fix the name, or define a macro in macros.sql"
            yield self.refuse(f'unknown function or macro "{call.name.text}"', call.start, hint)

    def _replace(self, call: Call) -> list[Piece] | None:
        macro = self.macros.by_name.get(call.name.text.lower())
        before = len(self.errors)
        if call.end is None:
            self._keep(f'the call of "{call.name.text}" has no closing bracket', call.start, "Add the closing bracket")
            return None
        arguments = [self._argument(call, tokens) for tokens in call.arguments]
        if macro is None:
            return None
        if len(arguments) != len(macro.parameters):
            takes = f"{len(macro.parameters)} argument{'' if len(macro.parameters) == 1 else 's'}"
            what = f'macro "{macro.name}" takes {takes}, not {len(arguments)}'
            self._keep(what, call.start, f"Write {macro.signature}, as {macro.where} defines it")
        if call.has_window:
            what = f"{call.after.text.upper() if call.after else ''} can't follow a macro call"
            self._keep(what, call.start, f"Write it in the body of the macro, {macro.where}")
        if len(self.errors) > before or any(argument is None for argument in arguments):
            return None
        values = dict(zip(macro.parameters, (argument or [] for argument in arguments), strict=True))
        size = sum(len(piece.text) for use in macro.uses for piece in values[use.parameter])
        if size > self.largest:
            self._keep(
                f"macros expand this to more than {self.largest:,} characters",
                call.start,
                "Repeat arguments less often in macros",
            )
            return None
        words = {token.text.lower() for tokens in call.arguments for token in tokens}
        words |= {
            token.text.lower() for value in values.values() for token in tokenize_sql("".join(p.text for p in value)) or ()
        }
        return macro.apply(values, words=words, start=call.start, bare=needs_no_brackets(call.before, call.after))

    def _argument(self, call: Call, tokens: Sequence[Token]) -> list[Piece] | None:
        """Return the pieces of an argument, or None with an error if it is not an expression."""
        if not tokens:
            self._keep(f'an argument of "{call.name.text}" is empty', call.start, "Write an expression, or NULL")
            return None
        wrong = _find_invalid_part(tokens)
        if any("\n" in self.text[token.start : token.end + 1] for token in tokens):
            wrong = "a multi-line string"
        if wrong:
            what = f'an argument of macro "{call.name.text.lower()}" can\'t be {wrong}'
            self._keep(what, int(tokens[0].start), "Write an expression of columns, literals and functions")
            return None
        return self.expand(tokens, int(tokens[0].start), int(tokens[-1].end) + 1, keep_lines=False)

    def _keep(self, what: str, offset: int, fix: str) -> None:
        self.errors.append(self.refuse(what, offset, fix))


def _is_operand(pieces: Sequence[Piece]) -> bool:
    return is_operand(tokenize_sql("".join(piece.text for piece in pieces)) or ())


def _find_invalid_part(tokens: Sequence[Token]) -> str | None:
    """Return what these tokens contain that an expression can't contain, or None."""
    if kind(tokens[0]) in _INVALID_STARTS or kind(tokens[-1]) == "STAR":
        return _INVALID_STARTS.get(kind(tokens[0]), "*")
    kinds = (kind(token) for token, depth in with_depth(tokens) if depth == 0)
    return next((_INVALID_PARTS[name] for name in kinds if name in _INVALID_PARTS), None)


def _rename(variables: Collection[str], words: Collection[str]) -> dict[str, str]:
    """Return new names for lambda variables that would capture names in the arguments."""
    taken = {*words, *variables}
    renamed: dict[str, str] = {}
    for name in variables:
        if name in words:
            renamed[name] = next(new for new in (f"{name}_{number}" for number in count(1)) if new not in taken)
            taken.add(renamed[name])
    return renamed
