"""DDL schemas as columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spec.loading.ddl import PRIMITIVES, TYPES, parse_ddl
from headrace.spec.model.columns import RESERVED
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct
from headrace.spec.problems import Place, Problems

PLACE = Place("schemas/x.sql", "mine")

CHARGE = """\
-- a charge, as providers send it
CREATE TABLE IF NOT EXISTS payments.charge (
    event_id STRING NOT NULL COMMENT 'it''s the key, (really)',
    amount DECIMAL(10, 2),
    risk_score INT, fee decimal(5),
    metadata ROW<
        order_id STRING,
        `user email` STRING NOT NULL,
        more STRUCT<deep: ARRAY<MAP<STRING, BIGINT>>>
    >,
    `3ds_authenticated` STRING, /* three
    lines */ `date` DATE,
    created_at TIMESTAMP(3), local TIMESTAMP_NTZ, ltz TIMESTAMP_LTZ(6),
    ok BOOLEAN NULL, f FLOAT, d DOUBLE, raw BINARY, comment STRING COMMENT "said", type STRING
);
"""


def read(text: str) -> tuple[tuple[Column, ...], list[str]]:
    problems = Problems()
    columns = problems.attempt(parse_ddl, text, place=PLACE, problems=problems)
    return columns or (), [str(error) for error in problems.errors]


def test_ddl_of_a_table_becomes_columns() -> None:
    string = Primitive("string")
    columns, errors = read(CHARGE)
    assert errors == []
    assert columns == (
        Column("event_id", string, required=True),
        Column("amount", Decimal(10, 2)),
        Column("risk_score", Primitive("int")),
        Column("fee", Decimal(5, 0)),
        Column(
            "metadata",
            Struct(
                (
                    Column("order_id", string),
                    Column("user email", string, required=True),
                    Column("more", Struct((Column("deep", Array(Map(Primitive("long")))),))),
                )
            ),
        ),
        Column("3ds_authenticated", string),
        Column("date", Primitive("date")),
        Column("created_at", Primitive("timestamp")),
        Column("local", Primitive("timestamp_ntz")),
        Column("ltz", Primitive("timestamp")),
        Column("ok", Primitive("boolean")),
        Column("f", Primitive("float")),
        Column("d", Primitive("double")),
        Column("raw", Primitive("binary")),
        Column("comment", string),
        Column("type", string),
    )


@pytest.mark.parametrize("text", ["a INT, b STRING", "(a INT, b STRING);", "CREATE TABLE x (a INT, b STRING)"])
def test_ddl_accepts_a_bare_column_list(text: str) -> None:
    assert read(text) == ((Column("a", Primitive("int")), Column("b", Primitive("string"))), [])


# text: (line of the error, message, next step)
MISTAKES = {
    "a INT,\nb VARCHAR(10)": (2, 'unknown type "VARCHAR"', "Write STRING instead"),
    "a INT,\nb Tensor": (2, 'unknown type "Tensor"', f"Types are: {TYPES}. Write one of them"),
    "a INT,\n\nkafka_offset BIGINT": (
        3,
        'column name "kafka_offset" is reserved for Headrace\'s own column',
        "Rename or remove the column",
    ),
    "_EXTRA STRING": (
        1,
        'column name "_EXTRA" is reserved for Headrace\'s own column',
        "Rename or remove the column",
    ),
    "a INT,\na STRING": (2, 'duplicate column "a"', "Remove one of the two"),
    "a INT,\nA STRING": (2, 'columns "a" and "A" differ only in case', "Remove one of the two"),
    "s STRUCT<\na: INT,\nA: INT>": (3, 'columns "a" and "A" differ only in case', "Remove one of the two"),
    "`a.b` INT": (
        1,
        'column "a.b" contains a dot, which tables read as a path',
        "Remove the column (its values are kept in _extra)",
    ),
    "`` INT": (1, "a column has an empty name", "Name the column"),
    "a DECIMAL(39, 2)": (
        1,
        "DECIMAL(39, 2) is not a valid decimal type",
        "Write DECIMAL(precision, scale) with a precision up to 38 and a scale up to the precision",
    ),
    "a DECIMAL": (
        1,
        "DECIMAL is not a valid decimal type",
        "Write DECIMAL(precision, scale) with a precision up to 38 and a scale up to the precision",
    ),
    "a NUMERIC(2, 3)": (
        1,
        "NUMERIC(2, 3) is not a valid decimal type",
        "Write DECIMAL(precision, scale) with a precision up to 38 and a scale up to the precision",
    ),
    "a MAP<INT, STRING>": (1, "a map's keys must be STRING, not INT", "Write MAP<STRING, …>"),
    "a TIMESTAMP(9)": (1, "TIMESTAMP has at most 6 fractional digits", "Write TIMESTAMP"),
    "a STRING(9)": (1, "STRING takes no arguments", "Write STRING"),
    "a TIMESTAMP WITHOUT TIME ZONE": (
        1,
        "TIMESTAMP WITHOUT … is not supported",
        "Write TIMESTAMP for a point in time, or TIMESTAMP_NTZ for a wall-clock time",
    ),
    "a INT,\n": (
        1,
        'expected a name, found "the end of the file"',
        "Put names with other characters in `backticks`",
    ),
    "": (1, 'expected a name, found "the end of the file"', "Put names with other characters in `backticks`"),
    "a INT,\n3ds STRING": (
        2,
        'expected a name, found "3"',
        "Put names with other characters in `backticks`",
    ),
    "a": (1, 'expected a type, found "the end of the file"', f"Types are: {TYPES}. Write one of them"),
    "a ARRAY": (1, 'expected "<", found "the end of the file"', "Fix the line"),
    "a ARRAY<INT": (1, 'expected ">", found "the end of the file"', "Fix the line"),
    "a DECIMAL(x)": (1, 'expected a number, found "x"', "Write a whole number"),
    "a INT COMMENT hey": (1, 'expected a quoted comment, found "hey"', "Put the comment in quotes"),
    "a INT\nb INT": (2, 'expected ",", found "b"', "Fix the line"),
    "CREATE TABLE x": (1, 'expected "(", found "the end of the file"', "Fix the line"),
    "CREATE VIEW x (a INT)": (1, 'expected "TABLE", found "VIEW"', "Fix the line"),
    "CREATE TABLE x (a INT)\nWITH ('topic' = 'x')": (
        2,
        'unexpected "WITH" after the list of columns',
        "Remove it (partitions and sources are set in pipeline.yml)",
    ),
    "a TIMESTAMP,\nWATERMARK FOR a AS a": (2, "WATERMARK FOR is not supported in a schema", "Remove it"),
    "a INT, PRIMARY KEY (a)": (1, "PRIMARY KEY is not supported in a schema", "Remove it"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_ddl_reports_an_error_with_its_line(text: str) -> None:
    line, what, fix = MISTAKES[text]
    assert read(text)[1] == [f"schemas/x.sql:{line}: {what}\n{fix}, then run: headrace check mine"]


def test_ddl_reports_several_errors_at_once() -> None:
    assert len(read("a FOO,\na INT,\nb DECIMAL(50),\nc MAP<DATE, INT>")[1]) == 4


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def write(kind: ColumnType) -> str:
    if isinstance(kind, Struct):
        fields = (f"{quote(column.name)}: {write(column.type)}{' NOT NULL' * column.required}" for column in kind.columns)
        return f"STRUCT<{', '.join(fields)}>"
    if isinstance(kind, Array):
        return f"ARRAY<{write(kind.element)}>"
    if isinstance(kind, Map):
        return f"MAP<STRING,{write(kind.value)}>"
    if isinstance(kind, Decimal):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return next(word for word, name in PRIMITIVES.items() if name == kind.name)


names = st.text(st.characters(exclude_characters=".", exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=9)


def columns_of(types: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[tuple[Column, ...]]:
    column = st.builds(Column, names.filter(lambda name: name.lower() not in RESERVED), types, st.booleans())
    return st.lists(column, min_size=1, max_size=4, unique_by=lambda item: item.name.lower()).map(tuple)


decimals = st.integers(1, 38).flatmap(lambda precision: st.builds(Decimal, st.just(precision), st.integers(0, precision)))
leaves: st.SearchStrategy[ColumnType] = st.sampled_from([Primitive(name) for name in PRIMITIVES.values()]) | decimals
types = st.recursive(
    leaves,
    lambda inner: st.builds(Array, inner) | st.builds(Map, inner) | st.builds(Struct, columns_of(inner)),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(columns_of(types))
def test_ddl_round_trips_random_columns(columns: tuple[Column, ...]) -> None:
    text = ", ".join(f"{quote(column.name)} {write(column.type)}{' NOT NULL' * column.required}" for column in columns)
    assert read(text) == (columns, [])


WORDS = ["a", "INT", "STRUCT", "<", ">", "(", ")", ",", ":", ";", "`", "'", "--", "/*", "*/", "NOT", "NULL", "5", "\n", "é"]
WORDS += ["COMMENT", "DECIMAL", "MAP", "STRING", "CREATE", "TABLE", "TIMESTAMP", "WATERMARK", "FOR", "."]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=15))
def test_ddl_returns_columns_or_errors_for_any_text(words: list[str]) -> None:
    columns, errors = read(" ".join(words))
    assert columns or errors
    assert all(error.startswith("schemas/x.sql:") for error in errors)
