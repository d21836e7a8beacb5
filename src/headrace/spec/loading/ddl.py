"""Read a schema written as DDL: one `CREATE TABLE x (…)`, or the bare list of its columns.

The parser does not use sqlglot, for four reasons: every name and type keeps its line, Flink's `ROW<…>` is read as
`STRUCT<…>`, types that sqlglot silently changes are errors (it reads `TIMESTAMP WITHOUT TIME ZONE` as a timestamp with a
time zone), and a check does not wait for the import.
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
    """Return the columns in order.

    A syntax error raises a SpecError. An invalid name or type is collected in `problems`.
    """
    try:
        return _Reader(tokenize(text, place=place), problems).table()
    except RecursionError:
        raise place.error("the schema is nested too deeply", line=1, fix="Write it with fewer levels") from None


@dataclass
class _Reader:
    """A recursive-descent parser. Each method reads one part of the DDL."""

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
                f'unexpected "{tokens.next.text}" after the list of columns',
                fix="Remove it (partitions and sources are set in pipeline.yml)",
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
        """Return the next column. `before` are the earlier columns of the same list."""
        for words in NOT_COLUMNS:
            if not nested and self.tokens.skip(*words):
                self.tokens.fail(f"{' '.join(words)} is not supported in a schema", fix="Remove it")
        token = self.tokens.next
        name = self.name()
        if nested:
            self.tokens.skip(":")
        column = Column(name, self.type(), self.constraints())
        problem = name_problem(name, taken=[column.name for column in before], nested=nested)
        if problem:
            self.keep(problem[0], at=token, fix=problem[1])
        if not nested and self.tokens.next.kind != "end" and self.tokens.next.keyword not in (",", ")", ";"):
            self.tokens.fail(f'expected ",", found "{self.tokens.next.text}"', fix="Fix the line")
        return column

    def constraints(self) -> bool:
        """Return whether the column is NOT NULL. Comments are ignored."""
        required = False
        while True:
            if self.tokens.skip("NOT", "NULL"):
                required = True
            elif self.tokens.skip("COMMENT"):
                if self.tokens.next.kind != "text":
                    self.tokens.fail(
                        f'expected a quoted comment, found "{self.tokens.next.text}"', fix="Put the comment in quotes"
                    )
                self.tokens.take()
            elif not self.tokens.skip("NULL"):
                return required

    def name(self) -> str:
        if self.tokens.next.kind not in ("word", "quoted"):
            self.tokens.fail(
                f'expected a name, found "{self.tokens.next.text}"',
                fix="Put names with other characters in `backticks`",
            )
        return self.tokens.take().text

    def type(self) -> ColumnType:
        token = self.tokens.next
        if token.kind != "word":
            self.tokens.fail(f'expected a type, found "{token.text}"', fix=f"Types are: {TYPES}. Write one of them")
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
                f"{token.keyword}{shown} is not a valid decimal type",
                at=token,
                fix=f"Write DECIMAL(precision, scale) with a precision up to {MAX_PRECISION} and a scale up to the precision",
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
                f"{word} {self.tokens.next.keyword} … is not supported",
                fix="Write TIMESTAMP for a point in time, or TIMESTAMP_NTZ for a wall-clock time",
            )
        elif len(arguments) > 1 or any(digits > 6 for digits in arguments):
            self.keep(f"{word} has at most 6 fractional digits", at=token, fix=f"Write {word}")
        return Primitive(PRIMITIVES[word])

    def arguments(self) -> list[int]:
        """Return the numbers in the brackets after a type's name, if any."""
        numbers: list[int] = []
        if not self.tokens.skip("("):
            return numbers
        while True:
            if self.tokens.next.kind != "number":
                self.tokens.fail(f'expected a number, found "{self.tokens.next.text}"', fix="Write a whole number")
            numbers.append(int(self.tokens.take().text))
            if not self.tokens.skip(","):
                self.tokens.expect(")")
                return numbers

    def keep(self, what: str, *, at: Token, fix: str) -> None:
        self.problems.errors.append(self.tokens.error(what, at=at, fix=fix))
