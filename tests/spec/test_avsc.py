"""Avro schemas as columns."""

from __future__ import annotations

import json

import pytest

from headrace.spec.loading.avro import parse_avro
from headrace.spec.model.types import Array, Column, Decimal, Map, Primitive, Struct
from headrace.spec.problems import Place, Problems

PLACE = Place("schemas/x.avsc", "mine")


BY_POSITION = "plain Avro reads fields by position, so it can't land with this field"
OTHER_FORM = (
    "Change the type in the producers; or remove the field here, if messages carry a registry's schema id"
    " (framing: confluent) or are JSON"
)


def read(text: str) -> tuple[tuple[Column, ...], list[str]]:
    problems = Problems()
    columns = problems.attempt(parse_avro, text, place=PLACE, problems=problems)
    return columns or (), [str(error) for error in problems.errors]


def record(*fields: str) -> str:
    lines = ",\n".join(fields)
    return f'{{"type": "record", "name": "E", "namespace": "a.b", "fields": [\n{lines}\n]}}'


def field(kind: object, name: str = "x") -> str:
    return json.dumps({"name": name, "type": kind})


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("string", Column("x", Primitive("string"), required=True)),
        ("boolean", Column("x", Primitive("boolean"), required=True)),
        ("int", Column("x", Primitive("int"), required=True)),
        ("long", Column("x", Primitive("long"), required=True)),
        ("float", Column("x", Primitive("float"), required=True)),
        ("double", Column("x", Primitive("double"), required=True)),
        ("bytes", Column("x", Primitive("binary"), required=True)),
        (["null", "long"], Column("x", Primitive("long"))),
        (["long", "null"], Column("x", Primitive("long"))),
        (["long"], Column("x", Primitive("long"), required=True)),
        ({"type": "long"}, Column("x", Primitive("long"), required=True)),
        ({"type": {"type": "long"}}, Column("x", Primitive("long"), required=True)),
        ({"type": "int", "logicalType": "date"}, Column("x", Primitive("date"), required=True)),
        ({"type": "long", "logicalType": "timestamp-millis"}, Column("x", Primitive("timestamp"), required=True)),
        (["null", {"type": "long", "logicalType": "timestamp-micros"}], Column("x", Primitive("timestamp"))),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            Column("x", Primitive("timestamp_ntz"), required=True),
        ),
        ({"type": "string", "logicalType": "uuid"}, Column("x", Primitive("string"), required=True)),
        ({"type": "int", "logicalType": "time-millis"}, Column("x", Primitive("int"), required=True)),
        ({"type": "long", "logicalType": "time-micros"}, Column("x", Primitive("long"), required=True)),
        ({"type": "long", "logicalType": "timestamp-nanos"}, Column("x", Primitive("long"), required=True)),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            Column("x", Primitive("binary"), required=True),
        ),
        ({"type": "string", "logicalType": "colour"}, Column("x", Primitive("string"), required=True)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            Column("x", Decimal(10, 2), required=True),
        ),
        (
            {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 9},
            Column("x", Decimal(9, 0), required=True),
        ),
        ({"type": "fixed", "name": "F", "size": 8}, Column("x", Primitive("binary"), required=True)),
        ({"type": "enum", "name": "N", "symbols": ["A"]}, Column("x", Primitive("string"), required=True)),
        ({"type": "array", "items": ["null", "int"]}, Column("x", Array(Primitive("int")), required=True)),
        (["null", {"type": "map", "values": "bytes"}], Column("x", Map(Primitive("binary")))),
        (
            {"type": "record", "name": "R", "fields": [{"name": "kafka_offset", "type": ["null", "int"]}]},
            Column("x", Struct((Column("kafka_offset", Primitive("int")),)), required=True),
        ),
    ],
)
def test_avro_type_becomes_a_column(kind: object, column: Column) -> None:
    assert read(record(field(kind))) == ((column,), [])


def test_avro_resolves_named_types_by_full_name() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    other = {
        "type": "record",
        "name": "Point",
        "namespace": "c",
        "fields": [{"name": "y", "type": {"type": "array", "items": "a.b.Point"}}],
    }
    columns, errors = read(
        record(
            field(point, "p"),
            field(other, "q"),
            field(["null", "Point"], "r"),
            field("c.Point", "s"),
            field("a.b.Point", "t"),
        )
    )
    a = Struct((Column("x", Primitive("int"), required=True),))
    c = Struct((Column("y", Array(a), required=True),))
    assert errors == []
    assert [(column.name, column.type) for column in columns] == [("p", a), ("q", c), ("r", a), ("s", c), ("t", a)]


@pytest.mark.parametrize(
    ("kind", "what", "fix"),
    [
        (["int", "string"], f'"x" is a union of 2 types, and a column has one type; {BY_POSITION}', OTHER_FORM),
        (
            {"type": "array", "items": "null"},
            f'"x" is always null, and a column needs a type; {BY_POSITION}',
            OTHER_FORM,
        ),
        ({"type": "fixed", "name": "F", "size": 0}, 'fixed "a.b.F" has no bytes', 'Write a "size" of 1 or more'),
        ("strin", 'unknown type "strin"', 'Did you mean "string"? Fix the type'),
        (5, '"x" has no Avro type', 'Write "type": "string" or another type'),
        (
            "E",
            f'"x" is recursive: it contains its own record "a.b.E", which a table can\'t store; {BY_POSITION}',
            OTHER_FORM,
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2},
            '"x" is not a decimal type that a table can store',
            'Write a precision up to 38 and a scale up to the precision, or remove "logicalType" to land the bytes',
        ),
        ({"type": "array"}, 'array "x" has no "items"', 'Add "items": type'),
        ({"type": "fixed", "name": "F"}, 'fixed "a.b.F" has no "size"', 'Add "size": …'),
        ({"type": "enum", "symbols": []}, "this enum has no valid Avro name", 'Add "name": "…"'),
        (
            {"type": "enum", "name": "E", "symbols": []},
            'type "a.b.E" is defined twice',
            "Refer to the first by its name",
        ),
        (
            {"type": "record", "name": "R", "fields": []},
            'record "a.b.R" has no fields',
            'Add "fields": [{"name": …, "type": …}]',
        ),
    ],
)
def test_avro_rejects_a_type_without_a_column_type(kind: object, what: str, fix: str) -> None:
    columns, errors = read(record(field("int", "a"), field(kind)))
    assert errors == [f"schemas/x.avsc:3: {what}\n{fix}, then run: headrace check mine"]
    assert [column.name for column in columns] == ["a"]


@pytest.mark.parametrize("kind", ["null", ["null"], {"type": "null"}])
def test_avro_skips_a_null_field(kind: object) -> None:
    """A null field takes no bytes, so a schema without the column still reads the message."""
    columns, errors = read(record(field(kind), field("int", "a")))
    assert ([column.name for column in columns], errors) == (["a"], [])


def test_avro_rejects_a_record_of_null_fields() -> None:
    assert 'all fields of record "a.b.E" are null' in read(record(field("null")))[1][0]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", 5),
        ("double", 5),
        ("bytes", "\u00ff"),
        (["null", "int"], None),
        (["null", "int"], 5),
        ({"type": "array", "items": "int"}, []),
        ({"type": "long", "logicalType": "timestamp-millis"}, 0),
    ],
)
def test_avro_accepts_a_default_of_the_field_type(kind: object, default: object) -> None:
    text = record(json.dumps({"name": "x", "type": kind, "default": default}))
    assert read(text)[1] == []


@pytest.mark.parametrize(
    ("kind", "default"), [("int", "5"), ("int", True), ("string", None), ("boolean", 0), (["null", "int"], "a")]
)
def test_avro_rejects_a_default_of_another_type(kind: object, default: object) -> None:
    """Avro readers reject such a schema, so every message would be rejected."""
    text = record(field("int", "a"), json.dumps({"name": "x", "type": kind, "default": default}))
    (error,) = read(text)[1]
    assert error.startswith(f'schemas/x.avsc:3: the default of "x" is {json.dumps(default)}, not a value of its type\n')


def test_avro_suggests_an_alias_for_a_reserved_name() -> None:
    (error,) = read(record(field("int", "kafka_offset")))[1]
    assert 'Rename it here, with "aliases": ["kafka_offset"]' in error


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{"type": "record",\n', 2, "not valid JSON: Expecting property name enclosed in double quotes"),
        ('"string"', 1, "the schema is not a record"),
        (
            record(field("int", "kafka_offset")),
            2,
            'column name "kafka_offset" is reserved for Headrace\'s own column',
        ),
        (record(field("int", "a"), "\t" + field("int", "A")), 3, 'columns "a" and "A" differ only in case'),
        (record(field("int", "a-b")), 2, '"a-b" is not a valid Avro name'),
        (record('{"name": "a"}'), 2, "a field needs a name and a type"),
    ],
)
def test_avro_rejects_an_invalid_schema(text: str, line: int, what: str) -> None:
    (error,) = read(text)[1]
    assert error.startswith(f"schemas/x.avsc:{line}: {what}\n")
