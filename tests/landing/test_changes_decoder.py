"""Change events in every form: several schemas per topic, Avro and JSON; rows that do not fit are never lost."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import NotFoundError, UnavailableError
from headrace.kafka.schemas import Registry
from headrace.landing.decode import GrowthError
from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.changes import ChangesDecoder
from headrace.spec.model.types import Column, Primitive, Struct
from tests.kafka.played_registry import play_registry
from tests.landing.envelopes import (
    ANY_SCALE,
    BYTES,
    DAY,
    DOUBLE,
    FLAG,
    FLOAT,
    INT,
    INTS,
    LONG,
    MICROS,
    MILLIS,
    PAIRS,
    SHORT,
    TEXT,
    TEXTS,
    TIME_OF_DAY,
    UUID,
    ZONED,
    Schemas,
    Table,
    change,
    decimal,
)
from tests.landing.streams import rows_of, schema_of

WIDE = Table(
    {
        "id": LONG,
        "name": TEXT,
        "price": decimal(12, 2),
        "tax": ANY_SCALE,
        "fee": ANY_SCALE,
        "stock": INT,
        "kind": SHORT,
        "weight": DOUBLE,
        "ratio": FLOAT,
        "active": FLAG,
        "photo": BYTES,
        "at": MICROS,
        "seen": ZONED,
        "key": UUID,
        "tags": TEXTS,
        "sizes": INTS,
        "day": DAY,
        "moment": MILLIS,
        "opens": TIME_OF_DAY,
        "huge": decimal(38, 10),
    }
)
ORDERS = Table({"id": INT, "total": decimal(10, 2), "note": TEXT})


def decoder(table: Table, *schemas: Table) -> ChangesDecoder:
    """Return a decoder for the table of `table`. The registry has the schemas from id 1 on."""
    return ChangesDecoder(schema=schema_of(table.stream), registry=Schemas(*(schemas or (table,))))


def decode(how: ChangesDecoder, values: list[bytes | None]) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """Return the rows, and the reasons by message. Each message is in one of both, and rows keep their order."""
    decoded = how.decode(values)
    assert sorted([*decoded.rows, *decoded.bad]) == list(range(len(values)))
    assert list(decoded.rows) == sorted(decoded.rows)
    for name, column in decoded.columns.items():
        assert (len(column), column.type) == (len(decoded.rows), how._schema.field(name).type)
        column.validate(full=True)
    return dict(zip(decoded.rows, rows_of(decoded), strict=True)), dict(decoded.bad)


def unscaled(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
any_scale = st.fixed_dictionaries({"scale": st.integers(-5, 40), "value": st.integers(-(2**200), 2**200).map(unscaled)})
wide_rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        **{
            name: st.none() | values
            for name, values in {
                "name": any_text,
                "price": st.decimals(-(10**10) + 1, 10**10 - 1, places=2, allow_nan=False),
                "tax": any_scale,
                "fee": any_scale,
                "stock": st.integers(-(2**31), 2**31 - 1),
                "kind": st.integers(-(2**15), 2**15 - 1),
                "weight": st.floats(),
                "ratio": st.floats(width=32),
                "active": st.booleans(),
                "photo": st.binary(max_size=20),
                "at": st.integers(-(2**63), 2**63 - 1),
                "seen": any_text,
                "key": st.uuids().map(str),
                "tags": st.lists(st.none() | any_text, max_size=4),
                "sizes": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
                "day": st.integers(-719_162, 2_932_896),
                "moment": st.integers(-62_135_596_800_000, 253_402_300_799_999),
                "opens": st.integers(0, 86_399_999),
                "huge": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal(f"{number}E-10")),
            }.items()
        },
    }
)


def as_landed(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a row with days and timestamps as values of the table's types."""
    if row is None:
        return None
    landed = dict(row)
    if row["day"] is not None:
        landed["day"] = date.fromordinal(date(1970, 1, 1).toordinal() + row["day"])
    if row["moment"] is not None:
        landed["moment"] = pa.scalar(row["moment"], pa.timestamp("ms", "UTC")).as_py()
    return landed


def comparable(value: Any) -> Any:
    """Return a value that equals itself, even if it is NaN."""
    return repr(value) if not isinstance(value, dict) else {name: comparable(item) for name, item in value.items()}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.none() | wide_rows, st.none() | wide_rows), min_size=1, max_size=6))
def test_both_wires_give_what_was_written(pairs: list[tuple[dict[str, Any] | None, dict[str, Any] | None]]) -> None:
    events = [change(after, before=before, lsn=lsn) for lsn, (after, before) in enumerate(pairs)]
    wanted = [{**event, "before": as_landed(event["before"]), "after": as_landed(event["after"])} for event in events]
    for values in ([WIDE.framed(event, schema_id=1) for event in events], [WIDE.wrapped(event) for event in events]):
        rows, bad = decode(decoder(WIDE), list(values))
        assert bad == {}
        assert [comparable(rows[index]) for index in range(len(events))] == [comparable(event) for event in wanted]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.none() | wide_rows, st.none() | wide_rows), min_size=1, max_size=3))
def test_changes_are_decoded_many_at_once(pairs: list[tuple[dict[str, Any] | None, dict[str, Any] | None]]) -> None:
    """Otherwise decoding would be ten times slower, and no other test would notice."""
    plain = Table({name: column for name, column in WIDE.columns.items() if name not in ("opens", "moment")})
    rows = [{name: value for name, value in (row or {"id": 1}).items() if name in plain.columns} for row, _ in pairs]
    values = [plain.framed(change(row, lsn=lsn), schema_id=1)[5:] for lsn, row in enumerate(rows)]
    assert AvroDecoder(plain.avsc, schema=schema_of(plain.stream))._decode_values(values) is not None


def test_several_schemas_in_one_topic() -> None:
    old = Table({"id": INT, "note": TEXT})
    newer = Table({"note": TEXT, "id": INT, "total": decimal(8, 2)})
    values: list[bytes | None] = [
        ORDERS.framed(change({"id": 1, "total": Decimal("12345678.90"), "note": "one"}), schema_id=1),
        old.framed(change({"id": 2, "note": "two"}), schema_id=2),
        None,
        newer.framed(change({"id": 3, "total": Decimal("-0.01"), "note": None}), schema_id=3),
        old.wrapped(change({"id": 4, "note": "four"})),
        ORDERS.framed(change(None, before={"id": 1, "total": None, "note": None}), schema_id=1),
    ]
    rows, bad = decode(decoder(ORDERS, ORDERS, old, newer), values)
    assert bad == {}
    assert [rows[index]["after"] for index in range(6)] == [
        {"id": 1, "total": Decimal("12345678.90"), "note": "one"},
        {"id": 2, "total": None, "note": "two"},
        None,
        {"id": 3, "total": Decimal("-0.01"), "note": None},
        {"id": 4, "total": None, "note": "four"},
        None,
    ]
    assert rows[5]["before"] == {"id": 1, "total": None, "note": None}
    assert [rows[index]["op"] for index in range(6)] == ["c", "c", None, "c", "c", "d"]
    assert set(rows[2].values()) == {None}


GOOD = ORDERS.framed(change({"id": 1, "total": Decimal("1.00"), "note": "x"}), schema_id=1)
WRAPPED = ORDERS.wrapped(change({"id": 1, "total": Decimal("1.00"), "note": "x"}))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "empty value"),
        (b"\x01\x02", "neither Avro with a schema's id nor JSON"),
        (GOOD[:3], "truncated Avro: the message ends before the id"),
        (GOOD[:40], "truncated Avro"),
        (GOOD + b"\x00", "malformed Avro: 1 byte is left"),
        (GOOD[:5] + b"\x09" + GOOD[6:], "malformed Avro"),
        (b"\x00\x00\x00\x00\x09" + GOOD[5:], "unknown schema: the registry has no schema 9"),
        (WRAPPED[:-5], "malformed JSON"),
        (b'{"before": null, "after": {"id": 1}, "op": "c"}', "wrong type: JSON without its schema"),
        (b'{"schema": null, "payload": {"id": 1}}', "wrong type: JSON without its schema"),
        (b'{"schema": {"type": "string"}, "payload": "x"}', "schema does not fit: of its schema, its schema is string"),
        (WRAPPED.replace(b'"id": 1', b'"id": 3000000000'), "overflow"),
        (WRAPPED.replace(b'"id": 1', b'"id": "one"'), "wrong type"),
        (WRAPPED.replace(b'"id": 1', b'"id": 1, "odd": 2'), "wrong type: its own schema does not name after.odd"),
        (
            ORDERS.framed(change({"id": 1, "total": Decimal("1.00"), "note": "x" * 99}), schema_id=1)[:-40],
            "truncated Avro",
        ),
    ],
)
def test_bad_message_is_refused_with_its_reason(value: bytes, reason: str) -> None:
    rows, bad = decode(decoder(ORDERS), [GOOD, value, WRAPPED, None])
    assert list(bad) == [1]
    assert bad[1].startswith(reason), bad[1]
    assert rows[0] == rows[2]
    assert rows[0]["after"] == {"id": 1, "total": Decimal("1.00"), "note": "x"}


@pytest.mark.parametrize("digits", [b"\x00\x98\x96\x80\x00\x00\x00", b"\x7f" * 17, b""])
def test_decimal_with_too_many_digits_is_refused_alone(digits: bytes) -> None:
    wrong = Table({"id": INT, "total": BYTES, "note": TEXT})
    value = wrong.framed(change({"id": 2, "total": digits, "note": "x"}), schema_id=1)
    rows, bad = decode(decoder(ORDERS), [GOOD, value, GOOD])
    assert sorted(rows) == [0, 2]
    assert bad == {1: "overflow: not a value of decimal128(10, 2) - at `after.total`"}


def test_bad_values_between_lists_maps_and_nulls_are_refused_alone() -> None:
    """Bad values are found by bisection, and bisecting nested columns is easy to get wrong."""
    table = Table({"id": INT, "total": decimal(10, 2), "tags": TEXTS, "words": PAIRS})

    def row(number: int) -> dict[str, Any]:
        total = Decimal("123456789012.34") if number in (5, 11) else Decimal("0.01")
        tags, words = [f"{number}", None] if number % 3 else None, {"a": f"{number}"} if number % 2 else None
        return {"id": number, "total": total, "tags": tags, "words": words}

    wider = Table({**table.columns, "total": decimal(14, 2)})
    events = [change(row(number), lsn=number) for number in range(16)]
    framed: list[bytes | None] = [wider.framed(event, schema_id=1) for event in events]
    for values in (framed, [table.wrapped(event) for event in events]):
        rows, bad = decode(decoder(table), list(values))
        assert bad == dict.fromkeys((5, 11), "overflow: not a value of decimal128(10, 2) - at `after.total`")
        for number, landed in rows.items():
            wanted = row(number)
            assert landed["after"] == {**wanted, "words": list(wanted["words"].items()) if wanted["words"] else None}


@pytest.mark.parametrize(
    ("column", "kind", "reason"),
    [
        ("total", TEXT, "`before.total` is string, and the table has decimal(10, 2)"),
        ("total", decimal(12, 4), "`before.total` is decimal(12, 4), and the table has decimal(10, 2)"),
        ("id", TEXT, "`before.id` is string, and the table has int"),
        ("note", INTS, "`before.note` is list<int>, and the table has string"),
        ("note", DAY, "`before.note` is date, and the table has string"),
        ("Note", TEXT, "`before.Note` and the table's `note` differ only in case"),
        ("more", decimal(50, 2), '"more" is not a decimal type that a table can store'),
    ],
)
def test_schema_that_the_table_cannot_hold(column: str, kind: Any, reason: str) -> None:
    columns = {name: type_ for name, type_ in ORDERS.columns.items() if name.lower() != column.lower()}
    other = Table({**columns, column: kind})
    row = dict.fromkeys(other.columns) | {"id": "1" if column == "id" else 1}
    how = decoder(ORDERS, ORDERS, other)
    values: list[bytes | None] = [GOOD, other.framed(change(row), schema_id=2), other.wrapped(change(row))]
    rows, bad = decode(how, values)
    assert sorted(rows) == [0]
    assert bad[1].startswith(f"schema does not fit: of schema 2, {reason}"), bad
    if column != "more":
        assert bad[2].startswith(f"schema does not fit: of its schema, {reason}"), bad
    assert how.decode(values).refused == (bad[1], bad[2])


@pytest.mark.parametrize(
    ("column", "kind", "wanted"),
    [("id", LONG, "long"), ("total", decimal(12, 2), "decimal(12,2)"), ("email", TEXT, "string"), ("tax", ANY_SCALE, "struct")],
)
def test_schema_that_the_table_has_to_grow_for(column: str, kind: Any, wanted: str) -> None:
    other = Table({**ORDERS.columns, column: kind})
    row = dict.fromkeys(other.columns) | {"id": 1}
    for value in (other.framed(change(row), schema_id=2), other.wrapped(change(row))):
        with pytest.raises(GrowthError) as growth:
            decoder(ORDERS, ORDERS, other).decode([GOOD, value])
        (columns,) = growth.value.columns
        after = next(column.type for column in columns if column.name == "after")
        assert isinstance(after, Struct)
        assert str(next(candidate.type for candidate in after.columns if candidate.name == column)).startswith(wanted)
        assert decode(decoder(other, ORDERS, other), [GOOD, value])[1] == {}


def test_map_and_a_narrower_table_of_long_ago() -> None:
    """A table that has grown accepts older messages."""
    grown = Table({"id": LONG, "total": decimal(20, 2), "note": TEXT, "ratio": DOUBLE, "words": PAIRS})
    old = Table({"id": INT, "total": decimal(10, 2), "ratio": FLOAT, "words": PAIRS})
    row = {"id": -5, "total": Decimal("-1.50"), "ratio": 0.5, "words": {"a": "b", "c": None}}
    values = [old.framed(change(row), schema_id=1), old.wrapped(change(row))]
    rows, bad = decode(decoder(grown, old), list(values))
    assert bad == {}
    assert rows[0]["after"] == rows[1]["after"] == {**row, "note": None, "words": [("a", "b"), ("c", None)]}


def test_new_part_of_the_envelope_is_a_new_column() -> None:
    avsc = ORDERS.avsc.replace('"fields": [{"name": "before"', '"fields": [{"name": "extra", "type": "int"}, {"name": "before"')

    class One(Registry):
        def schema(self, schema_id: int) -> str:
            return avsc

    with pytest.raises(GrowthError) as growth:
        ChangesDecoder(schema=schema_of(ORDERS.stream), registry=One("")).decode([GOOD])
    assert growth.value.columns[0][0] == Column("extra", Primitive("int"))


def test_registry_is_asked_once_for_each_schema() -> None:
    with play_registry() as server:
        registry = Registry(server.url)
        server.add(1, ORDERS.avsc)
        assert [registry.schema(1), registry.schema(1)] == [ORDERS.avsc] * 2
        for _ in range(2):
            with pytest.raises(NotFoundError, match="the registry has no schema 2"):
                registry.schema(2)
        assert [path for path, _ in server.asked] == ["/schemas/ids/1", "/schemas/ids/2"]


@pytest.mark.parametrize("status", [404, 500, 503])
def test_registry_that_is_away_is_worth_trying_again(status: int) -> None:
    """A web server that is not a registry also responds 404, and no message may be refused for that."""
    with play_registry() as server:
        server.status = status
        with pytest.raises(UnavailableError, match=str(status)):
            ChangesDecoder(schema=schema_of(ORDERS.stream), registry=Registry(server.url)).decode([GOOD])
        server.status = 200
        server.add(1, ORDERS.avsc)
        rows, _ = decode(ChangesDecoder(schema=schema_of(ORDERS.stream), registry=Registry(server.url)), [GOOD])
        assert len(rows) == 1
    with pytest.raises(UnavailableError, match="does not answer"):
        Registry(server.url).schema(1)
    with pytest.raises(UnavailableError, match="no registry is configured"):
        Registry("").schema(1)


def test_changes_are_resolved_to_the_streams_own_schema() -> None:
    """Its types, aliases and defaults apply; other fields keep the types of the message's schema."""
    file = Table({"key": LONG, "total": DOUBLE, "note": BYTES, "state": TEXT})
    aliased = file.avsc.replace('{"name": "key",', '{"name": "key", "aliases": ["id"],')
    aliased = aliased.replace(
        '{"name": "state", "type": ["null", "string"]}', '{"name": "state", "type": ["string", "null"], "default": "new"}'
    )
    assert aliased.count('"aliases"') == 1
    assert aliased.count('"default": "new"') == 1
    table = Table({**file.columns, "extra": INT})
    writer = Table({"extra": INT, "id": INT, "total": INT, "note": TEXT})
    how = ChangesDecoder(schema=schema_of(table.stream), registry=Schemas(writer), reader=aliased)
    values: list[bytes | None] = [
        writer.framed(change({"extra": 7, "id": 1, "total": 2, "note": "é"}), schema_id=1),
        writer.framed(change(None, before={"extra": None, "id": 3, "total": None, "note": None}, lsn=2), schema_id=1),
    ]
    rows, bad = decode(how, values)
    assert bad == {}
    assert rows[0]["after"] == {"key": 1, "total": 2.0, "note": "é".encode(), "state": "new", "extra": 7}
    assert rows[0]["before"] is None
    assert rows[1]["before"] == {"key": 3, "total": None, "note": None, "state": "new", "extra": None}


def test_default_that_connect_wrote_is_not_filled_in() -> None:
    """It is the database's default, or a placeholder such as 1970 for `now()`; a dropped column is null."""
    file = Table({"id": INT, "stock": INT})
    kind = '{"type": "int", "connect.default": 5}'
    avsc = file.avsc.replace('{"name": "stock", "type": ["null", "int"]}', f'{{"name": "stock", "type": {kind}, "default": 5}}')
    assert avsc != file.avsc
    writer = Table({"id": INT})
    how = ChangesDecoder(schema=schema_of(file.stream), registry=Schemas(writer), reader=avsc)
    rows, _ = decode(how, [writer.framed(change({"id": 1}), schema_id=1)])
    assert rows[0]["after"] == {"id": 1, "stock": None}


@given(st.lists(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: GOOD[:5] + tail), max_size=8))
def test_no_bytes_fail_a_batch(values: list[bytes]) -> None:
    decode(decoder(ORDERS), [GOOD, *values, WRAPPED])
