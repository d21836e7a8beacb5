"""Parse the body of a macro: one expression over the macro's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.spec.problems import Place, Problems, suggest
from headrace.spec.sql.macro_expansion import Macro, Use
from headrace.spec.sql.macro_tokens import flatten, kind, needs_no_brackets, tokenize_sql
from headrace.spec.sql.queries import parse_sql
from headrace.spec.sql.source_map import Piece, SourceMap

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

    from headrace.errors import SpecError

_SELECT = "SELECT "


def read_body(macro: Macro, pieces: Sequence[Piece], *, text: str, place: Place, problems: Problems) -> Macro | None:
    """Return the macro with this body, which contains no macro calls. Errors are collected in `problems`.

    `pieces` are the pieces of the body, and `text` is the text of their file.
    """
    body = "".join(piece.text for piece in pieces)
    origin = SourceMap(text, (Piece(_SELECT, pieces[0].start, macro.origin), *pieces))
    reader = _BodyReader(macro, body, origin, place)
    before = len(problems.errors)
    tree = problems.attempt(reader.parse)
    if tree is None:
        return None
    problems.errors += reader.find_mistakes(tree)
    return reader.read(tree) if len(problems.errors) == before else None


class _BodyReader:
    def __init__(self, macro: Macro, body: str, origin: SourceMap, place: Place) -> None:
        self._macro = macro
        self._body = body
        self._origin = origin
        self._place = place
        self._tokens: list[Token] = tokenize_sql(body) or []

    def parse(self) -> exp.Expr:
        """Return the body as an expression."""
        from sqlglot import exp

        if any("\n" in self._body[token.start : token.end + 1] for token in self._tokens):
            raise self._error("a macro can't contain a multi-line string", 0, fix="Write the line break as \\n")
        if kind(self._tokens[0]) == "TABLE":
            raise self._not_an_expression("it returns a table")
        tree = parse_sql(_SELECT + self._body, place=self._place, origin=self._origin, fix="Fix the macro")
        parts = {name for name, value in tree.args.items() if value} - {"expressions", "kind"}
        if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or parts:
            raise self._not_an_expression("it is not a single value")
        value: exp.Expr = tree.expressions[0]
        if value.find(exp.Query):
            raise self._not_an_expression("it contains a query")
        if isinstance(value, exp.Alias | exp.Star | exp.Lambda) or any(kind(token) == "ARROW" for token in self._tokens[:2]):
            raise self._not_an_expression("it is an alias, a star or a lambda")
        return value

    def find_mistakes(self, value: exp.Expr) -> Iterator[SpecError]:
        """Yield an error for each name that is not a parameter, and for each ambiguous parameter."""
        from sqlglot import exp

        names = [*self._macro.parameters, *self._variables(value)]
        for variable in self._variables(value):
            if variable in self._macro.parameters:
                at = next(start for start, _ in self._places(variable))
                what = f'the lambda variable "{variable}" has the name of a parameter'
                yield self._error(what, at, fix="Rename one of them")
        for column in value.find_all(exp.Column):
            root = column.parts[0]
            if root.name.lower() not in names and not isinstance(root, exp.Star):
                hint = suggest(root.name, self._macro.parameters, plural="Parameters")
                what = f'"{root.name}" is not a parameter of macro "{self._macro.name}"'
                yield self._error(
                    what, root.meta.get("start", len(_SELECT)) - len(_SELECT), fix=f"{hint} Pass it as an argument"
                )
        columns = self._columns(value)
        for parameter in self._macro.parameters:
            for start, _ in self._places(parameter):
                if start not in columns and parameter not in self._variables(value):
                    what = f'parameter "{parameter}" of macro "{self._macro.name}" is a keyword here'
                    yield self._error(what, start, fix="Rename the parameter")

    def read(self, value: exp.Expr) -> Macro:
        """Return the macro with the positions of its parameters and lambda variables."""
        body = flatten(self._body, self._tokens)
        around = {int(token.start): index for index, token in enumerate(self._tokens)}
        uses = []
        for parameter in self._macro.parameters:
            for start, end in self._places(parameter):
                index = around[start]
                before = self._tokens[index - 1] if index else None
                after = self._tokens[index + 1] if index + 1 < len(self._tokens) else None
                uses.append(Use(parameter, start, end, needs_no_brackets(before, after)))
        variables: Mapping[str, tuple[tuple[int, int], ...]] = {
            variable: tuple(self._places(variable)) for variable in self._variables(value)
        }
        return replace(self._macro, body=body, uses=tuple(uses), variables=variables)

    def _places(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield the spans where a name is a column or the root of a path, not a field, an alias, a type or a function."""
        for index, token in enumerate(self._tokens):
            before = kind(self._tokens[index - 1]) if index else ""
            after = kind(self._tokens[index + 1]) if index + 1 < len(self._tokens) else ""
            is_name = kind(token) not in ("STRING", "RAW_STRING", "NUMBER") and token.text.lower() == name
            if is_name and before not in ("DOT", "ALIAS") and after not in ("L_PAREN", "FARROW"):
                yield int(token.start), int(token.end) + 1

    def _columns(self, value: exp.Expr) -> set[int]:
        from sqlglot import exp

        roots = (column.parts[0] for column in value.find_all(exp.Column))
        return {root.meta["start"] - len(_SELECT) for root in roots if "start" in root.meta}

    def _variables(self, value: exp.Expr) -> tuple[str, ...]:
        from sqlglot import exp

        names = (name.name.lower() for scope in value.find_all(exp.Lambda) for name in scope.expressions)
        return tuple(dict.fromkeys(names))

    def _not_an_expression(self, why: str) -> SpecError:
        what = f'the body of macro "{self._macro.name}" is not an expression: {why}'
        return self._error(what, 0, fix="Write one value of columns, literals and functions")

    def _error(self, what: str, offset: int, *, fix: str) -> SpecError:
        location = self._origin.locate(offset + len(_SELECT))
        return self._place.error(what, line=location.line, column=location.column, fix=fix)
