"""A schema written as DDL: one `CREATE TABLE x (…)`, or the bare list of its columns.

The list of columns is a small language, read here token by token rather than with sqlglot: every name and type keeps its
line, Flink's `ROW<…>` is read as `STRUCT<…>`, what sqlglot takes for something else without a word (`TIMESTAMP WITHOUT
TIME ZONE` becomes a moment) is refused, and a check does not wait for an import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import SpecError
from headrace.spec.loading.tokens import Token, Tokens, tokenize
from headrace.spec.model.columns import name_problem
from headrace.spec.model.types import MAX_PRECISION, Array, Column, ColumnType, Decimal, Map, Primitive, PrimitiveName, Struct
from headrace.spec.problems import Place, Problems

PRIMITIVES: dict[str, PrimitiveName] = {
    "STRING": "string",
    "INT": "int",
    "INTEGER": "int",
    "BIGINT": "long",
    "LONG": "long",
    "BOOLEAN": "boolean",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "BINARY": "binary",
}
INSTEAD = {
    **dict.fromkeys(("VARCHAR", "CHAR", "TEXT", "UUID", "JSON"), "STRING"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "BYTE", "SHORT"), "INT"),
    **dict.fromkeys(("BYTES", "VARBINARY", "BLOB"), "BINARY"),
    **dict.fromkeys(("DATETIME", "TIMESTAMPTZ"), "TIMESTAMP"),
    "BOOL": "BOOLEAN",
}
TYPES = (
    "STRING, INT, BIGINT, BOOLEAN, FLOAT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMP, TIMESTAMP_NTZ, BINARY, "
    "STRUCT<name: type>, ARRAY<type>, MAP<STRING, type>"
)
NOT_COLUMNS = (("WATERMARK", "FOR"), ("PRIMARY", "KEY"))


def parse_ddl(text: str, *, place: Place, problems: Problems) -> tuple[Column, ...]:
    """Return the columns in the order they are written.

    A text that can't be read on raises a SpecError; a name or type that can't be is kept as a problem.
    """
    try:
        return _Reader(tokenize(text, place=place), problems).table()
    except RecursionError:
        raise place.error("the schema is nested too deeply", line=1, fix="Write it with fewer levels") from None


@dataclass
class _Reader:
    """Reads the parts of a table from left to right."""

    tokens: Tokens
    problems: Problems

    def table(self) -> tuple[Column, ...]:
        tokens = self.tokens
        if tokens.skip("CREATE"):
            tokens.skip("OR", "REPLACE")
            tokens.expect("TABLE")
            tokens.skip("IF", "NOT", "EXISTS")
            self.name()
            while tokens.skip("."):
                self.name()
            if tokens.next.keyword != "(":
                tokens.expect("(")
        if tokens.skip("("):
            columns = self.columns()
            tokens.expect(")")
        else:
            columns = self.columns()
        tokens.skip(";")
        if tokens.next.kind != "end":
            tokens.fail(
                f'"{tokens.next.text}" after the list of columns',
                fix="Remove it (partitions and where the events come from stand in pipeline.yml)",
            )
        return columns

    def columns(self, *, nested: bool = False) -> tuple[Column, ...]:
        columns: list[Column] = []
        while True:
            start = self.tokens.position
            try:
                columns.append(self.column(columns, nested=nested))
            except SpecError as error:
                if nested:
                    raise
                self.problems.errors.append(error)
                self.tokens.position = start
                self.tokens.skip_item()
            if not self.tokens.skip(","):
                return tuple(columns)

    def column(self, before: Sequence[Column], *, nested: bool) -> Column:
        """Return the next column; `before` are those of the same list."""
        for words in NOT_COLUMNS:
            if not nested and self.tokens.skip(*words):
                self.tokens.fail(f"{' '.join(words)} has no meaning in a schema", fix="Remove it")
        token = self.tokens.next
        name = self.name()
        if nested:
            self.tokens.skip(":")
        column = Column(name, self.type(), self.constraints())
        problem = name_problem(name, taken=[each.name for each in before], nested=nested)
        if problem:
            self.keep(problem[0], at=token, fix=problem[1])
        if not nested and self.tokens.next.kind != "end" and self.tokens.next.keyword not in (",", ")", ";"):
            self.tokens.fail(f'"," is expected here, not "{self.tokens.next.text}"', fix="Fix the line")
        return column

    def constraints(self) -> bool:
        """Return whether NOT NULL comes next; comments are for people and are passed over."""
        required = False
        while True:
            if self.tokens.skip("NOT", "NULL"):
                required = True
            elif self.tokens.skip("COMMENT"):
                if self.tokens.next.kind != "text":
                    self.tokens.fail(f'COMMENT is followed by "{self.tokens.next.text}"', fix="Put the comment in quotes")
                self.tokens.take()
            elif not self.tokens.skip("NULL"):
                return required

    def name(self) -> str:
        if self.tokens.next.kind not in ("word", "quoted"):
            self.tokens.fail(
                f'a name is expected here, not "{self.tokens.next.text}"',
                fix="Put names with other characters in `backticks`",
            )
        return self.tokens.take().text

    def type(self) -> ColumnType:
        token = self.tokens.next
        if token.kind != "word":
            self.tokens.fail(f'a type is expected here, not "{token.text}"', fix=f"Types are: {TYPES}. Write one of them")
        word = self.tokens.take().keyword
        if word in ("STRUCT", "ROW"):
            self.tokens.expect("<")
            fields = self.columns(nested=True)
            self.tokens.expect(">")
            return Struct(fields)
        if word == "ARRAY":
            self.tokens.expect("<")
            element = self.type()
            self.tokens.skip("NOT", "NULL")
            self.tokens.expect(">")
            return Array(element)
        if word == "MAP":
            return self.map(token)
        if word in ("DECIMAL", "NUMERIC", "DEC"):
            return self.decimal(token)
        return self.primitive(token)

    def map(self, token: Token) -> Map:
        self.tokens.expect("<")
        key = self.type()
        self.tokens.expect(",")
        value = self.type()
        self.tokens.skip("NOT", "NULL")
        self.tokens.expect(">")
        if key != Primitive("string"):
            self.keep(f"a map's keys must be STRING, not {str(key).upper()}", at=token, fix="Write MAP<STRING, …>")
        return Map(value)

    def decimal(self, token: Token) -> Decimal:
        arguments = self.arguments()
        precision, scale = (*arguments, 0, 0)[:2]
        if not 1 <= len(arguments) <= 2 or not 1 <= precision <= MAX_PRECISION or scale > precision:
            shown = f"({', '.join(map(str, arguments))})" if arguments else ""
            self.keep(
                f"{token.keyword}{shown} is not a decimal type",
                at=token,
                fix=f"Write DECIMAL(precision, scale), the precision up to {MAX_PRECISION} and the scale up to it",
            )
        return Decimal(precision, scale)

    def primitive(self, token: Token) -> Primitive:
        word, arguments = token.keyword, self.arguments()
        if word not in PRIMITIVES:
            instead = INSTEAD.get(word)
            fix = f"Write {instead} instead" if instead else f"Types are: {TYPES}. Write one of them"
            self.keep(f'unknown type "{token.text}"', at=token, fix=fix)
            return Primitive("string")
        if not word.startswith("TIMESTAMP"):
            if arguments:
                self.keep(f"{word} takes no arguments", at=token, fix=f"Write {word}")
        elif self.tokens.next.keyword in ("WITH", "WITHOUT"):
            self.tokens.fail(
                f"{word} {self.tokens.next.keyword} … is not read here",
                fix="Write TIMESTAMP for a moment, or TIMESTAMP_NTZ for the reading of a clock on a wall",
            )
        elif len(arguments) > 1 or any(digits > 6 for digits in arguments):
            self.keep(f"{word} keeps microseconds, so at most 6 digits", at=token, fix=f"Write {word}")
        return Primitive(PRIMITIVES[word])

    def arguments(self) -> list[int]:
        """Return the numbers in the brackets after a type's name, if there are any."""
        numbers: list[int] = []
        if not self.tokens.skip("("):
            return numbers
        while True:
            if self.tokens.next.kind != "number":
                self.tokens.fail(f'a number is expected here, not "{self.tokens.next.text}"', fix="Write a whole number")
            numbers.append(int(self.tokens.take().text))
            if not self.tokens.skip(","):
                self.tokens.expect(")")
                return numbers

    def keep(self, what: str, *, at: Token, fix: str) -> None:
        self.problems.errors.append(self.tokens.error(what, at=at, fix=fix))
