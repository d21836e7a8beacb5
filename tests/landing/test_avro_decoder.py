"""Avro messages: block decoding and single decoding agree, and damage never becomes a wrong row."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.landing.decode import decoder_of
from headrace.landing.decode.avro import AvroDecoder
from headrace.spec.model.pipeline import Stream
from tests.landing.stored import Stored, encode_record
from tests.landing.streams import avro_stream, decode, decode_stored, decoder_for, rows_of, schema_of

UTC = timezone.utc


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Thing", "fields": [{"name": name, "type": kind} for name, kind in fields]})


LINEAGE = record(("uuid", "string"), ("timestamp", "long"))
FLAT = record(
    ("i", "int"),
    ("l", "long"),
    ("f", "float"),
    ("d", "double"),
    ("b", "boolean"),
    ("s", "string"),
    ("x", "bytes"),
    ("n", ["null", "string"]),
    ("o", ["long", "null"]),
    ("day", {"type": "int", "logicalType": "date"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("us", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("id", {"type": "string", "logicalType": "uuid"}),
    (
        "inner",
        {
            "type": "record",
            "name": "Inner",
            "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "z", "type": "string"}],
        },
    ),
)
RICH = record(
    ("e", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
    ("fx", {"type": "fixed", "name": "Four", "size": 4}),
    ("m", {"type": "map", "values": ["null", "long"]}),
    ("a", {"type": "array", "items": {"type": "record", "name": "Item", "fields": [{"name": "q", "type": "int"}]}}),
    ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
)


def encode(avsc: str, event: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(avsc)), event)
    return out.getvalue()


def zigzag(number: int, *, pad: int = 0) -> bytes:
    """Return Avro's encoding of an integer. With `pad` it is longer than necessary."""
    rest = (number << 1) ^ (number >> 70)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    for _ in range(pad):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def event(number: int) -> bytes:
    return encode(LINEAGE, {"uuid": f"{number:08d}-0000-4000-8000-000000000000", "timestamp": 1_771_963_198_501 + number})


GOOD = event(1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (GOOD[:20], "truncated Avro"),
        (GOOD[:-1], "truncated Avro"),
        (GOOD[:1], "truncated Avro"),
        (GOOD + b"\x00", "malformed Avro: 1 byte is left"),
        (GOOD + GOOD, "malformed Avro"),
        (zigzag(2**40) + b"abc", "truncated Avro"),
        (b"Obj\x01\x04", "truncated Avro: the message ends before its last field; it starts like an Avro container file, and"),
        (
            b"\xc3\x01" + b"12345678",
            "truncated Avro: the message ends before its last field; it starts like Avro's single-object",
        ),
        (zigzag(2) + b"\xff\xfe" + zigzag(1), "invalid UTF-8"),
        (b"", "empty value"),
        (None, "empty value"),
    ],
)
def test_bad_message_is_refused_with_its_reason(value: bytes | None, reason: str) -> None:
    rows, bad = decode(avro_stream(LINEAGE), [event(0), value, event(2)])
    assert list(bad) == [1]
    assert bad[1].startswith(reason), bad[1]
    assert [row["uuid"][:8] for row in rows] == ["00000000", "00000002"]


def test_message_that_lacks_what_the_next_has_too_much() -> None:
    """Concatenated they are two valid messages, so only their borders reveal the damage."""
    first, second = event(1), event(2)
    values: list[bytes | None] = [event(0), first[:-2], first[-2:] + second, event(3)]
    rows, bad = decode(avro_stream(LINEAGE), values)
    assert sorted(bad) == [1, 2]
    assert len(rows) == 2
    assert decode_stored(decoder_for(avro_stream(LINEAGE)), values) is None


def test_message_that_borrows_from_the_frame_of_the_next() -> None:
    """A string that is longer than its message takes in the frame of the next record, and its own missing number is in there.

    The first row reads well, and so do all that follow if the last record returns what was taken.
    """
    decoder = decoder_for(avro_stream(LINEAGE))
    frame = encode_record(Stored(b"", 1))
    for taken in range(1, 40):
        first = zigzag(taken) + b"a"
        last = b"a" * 40 + zigzag(1)
        assert decode_stored(decoder, [first, last, event(1)]) is None, taken
        assert decode_stored(decoder, [first, frame + last]) is None, taken


def test_numbers_that_are_longer_than_they_must_be_are_the_same_numbers() -> None:
    value = zigzag(2, pad=2) + b"ab" + zigzag(7, pad=1)
    rows, bad = decode(avro_stream(LINEAGE), [value, event(1)])
    assert bad == {}
    assert (rows[0]["uuid"], rows[0]["timestamp"]) == ("ab", 7)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**33 + 2**31 - 1, 2**33 + 5, 2**40])
def test_number_past_an_int_is_an_overflow(number: int) -> None:
    avsc = record(("i", "int"))
    rows, bad = decode(avro_stream(avsc), [zigzag(1), zigzag(number), zigzag(2)])
    assert [row["i"] for row in rows] == [1, 2]
    assert bad[1].startswith("overflow"), bad


@pytest.mark.parametrize("branch", [2, 3, 100])
def test_branch_that_a_union_does_not_have(branch: int) -> None:
    avsc = record(("n", ["null", "long"]))
    rows, bad = decode(avro_stream(avsc), [zigzag(1) + zigzag(5), zigzag(branch) + zigzag(6), zigzag(0)])
    assert [row["n"] for row in rows] == [5, None]
    assert bad[1].startswith("malformed Avro"), bad


@pytest.mark.parametrize("byte", [2, 255])
def test_boolean_that_is_neither(byte: int) -> None:
    avsc = record(("b", "boolean"))
    stream = avro_stream(avsc)
    alone = decode(stream, [bytes([byte])])
    rows, bad = decode(stream, [b"\x01", bytes([byte]), b"\x00"])
    assert ([row["b"] for row in rows], sorted(bad)) == (
        ([True, *(row["b"] for row in alone[0]), False]),
        [1] if alone[1] else [],
    )


@pytest.mark.parametrize("kind", ["timestamp-millis", "timestamp-micros", "local-timestamp-millis"])
@pytest.mark.parametrize("number", [2**62, -(2**62), 2**63 - 1, -(2**63), 253_402_300_800_000_000])
def test_time_outside_the_calendar_is_refused(kind: str, number: int) -> None:
    avsc = record(("at", {"type": "long", "logicalType": kind}))
    rows, bad = decode(avro_stream(avsc), [zigzag(0), zigzag(number), zigzag(1)])
    assert len(rows) == 2
    assert bad[1].startswith("bad timestamp"), bad


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31), 2_932_897, -719_163])
def test_date_outside_the_calendar_is_refused(number: int) -> None:
    avsc = record(("day", {"type": "int", "logicalType": "date"}))
    rows, bad = decode(avro_stream(avsc), [zigzag(0), zigzag(number), zigzag(1)])
    assert [row["day"] for row in rows] == [date(1970, 1, 1), date(1970, 1, 2)]
    assert bad[1].startswith("bad timestamp"), bad


def test_types_that_are_decoded_one_by_one() -> None:
    wanted: list[dict[str, Any]] = [
        {
            "e": "BLUE",
            "fx": b"\x00\x01\x02\xff",
            "m": {"k": 1, "z": None},
            "a": [{"q": 1}, {"q": -5}],
            "amount": Decimal("-1234567890123456.7891"),
            "local": datetime(2026, 2, 24, 12, 0, 0, 123),
        },
        {"e": "RED", "fx": b"abcd", "m": {}, "a": [], "amount": Decimal("0.0001"), "local": datetime(1969, 1, 1)},
    ]
    rows, bad = decode(avro_stream(RICH), [encode(RICH, row) for row in wanted])
    assert bad == {}
    assert rows == [{**row, "m": list(row["m"].items())} for row in wanted]


def test_decimal_with_more_digits_than_its_type_is_an_overflow() -> None:
    avsc = record(("amount", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}))

    def amount(unscaled: int) -> bytes:
        body = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
        return zigzag(len(body)) + body

    rows, bad = decode(avro_stream(avsc), [amount(12345), amount(123456), amount(10**60), amount(-1)])
    assert [row["amount"] for row in rows] == [Decimal("123.45"), Decimal("-0.01")]
    assert {index: reason.split(":")[0] for index, reason in bad.items()} == {1: "overflow", 2: "overflow"}


def test_type_that_is_named_twice() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    avsc = record(("here", point), ("there", "Point"))
    rows, bad = decode(avro_stream(avsc), [encode(avsc, {"here": {"x": 1}, "there": {"x": 2}})])
    assert (rows, bad) == ([{"here": {"x": 1}, "there": {"x": 2}}], {})


@pytest.mark.parametrize(
    ("avsc", "whole"),
    [
        (LINEAGE, {"uuid": "u", "timestamp": 1}),
        (record(("n", ["null", "string"]), ("b", "boolean"), ("d", "double")), {"n": "x", "b": True, "d": 0.5}),
        (
            RICH,
            {
                "e": "RED",
                "fx": b"abcd",
                "m": {"k": 1},
                "a": [{"q": 1}],
                "amount": Decimal("1.0000"),
                "local": datetime(2026, 1, 1),
            },
        ),
    ],
)
def test_message_that_is_cut_anywhere_is_truncated(avsc: str, whole: dict[str, Any]) -> None:
    value = encode(avsc, whole)
    rows, bad = decode(avro_stream(avsc), [value, *(value[:size] for size in range(1, len(value))), value])
    assert len(rows) == 2
    assert {reason.split(":")[0] for reason in bad.values()} == {"truncated Avro"}


longs = st.integers(-(2**63), 2**63 - 1)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
flat_events = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": longs,
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "b": st.booleans(),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
        "x": st.binary(max_size=200),
        "n": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "o": st.none() | longs,
        "day": st.dates(),
        "ms": moments.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)),
        "us": st.none() | moments,
        "id": st.uuids().map(str),
        "inner": st.fixed_dictionaries({"a": st.none() | st.integers(-(2**31), 2**31 - 1), "z": st.text(max_size=3)}),
    }
)


@given(st.lists(flat_events, min_size=1, max_size=20))
def test_what_was_encoded_comes_back(wanted: list[dict[str, Any]]) -> None:
    rows, bad = decode(avro_stream(FLAT), [encode(FLAT, row) for row in wanted])
    assert bad == {}
    assert rows == wanted


@given(st.lists(flat_events, min_size=1, max_size=5))
def test_many_at_once_is_taken_for_good_messages(wanted: list[dict[str, Any]]) -> None:
    """Otherwise every batch would take the slow path, and the tests that compare both paths would compare one with itself."""
    decoder = AvroDecoder(FLAT, schema=schema_of(avro_stream(FLAT)))
    values = [encode(FLAT, row) for row in wanted]
    assert decoder._decode_values(values) is not None
    assert decode_stored(decoder, values) is not None
    assert decode_stored(decoder, values, key=b"key") is not None


def read_strictly(avsc: str, value: bytes) -> dict[str, Any] | None:
    """Return what fastavro reads from a message, or None if it fails or leaves bytes."""
    plain = avsc.replace('"logicalType"', '"ignored"')
    stream = io.BytesIO(value)
    try:
        record = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(plain)), None)
    except Exception:
        return None
    return record if stream.tell() == len(value) and value else None  # type: ignore[return-value]


PLAIN = record(
    ("i", "int"),
    ("s", "string"),
    ("n", ["null", "string"]),
    ("o", ["long", "null"]),
    ("b", "boolean"),
    ("x", "bytes"),
    ("l", "long"),
)
plain_events = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        "n": st.none() | st.text(st.characters(codec="ascii"), max_size=5),
        "o": st.none() | longs,
        "b": st.booleans(),
        "x": st.binary(max_size=5),
        "l": longs | st.integers(-3, 3),
    }
)
damage = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 60), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=3
)


@given(st.lists(plain_events, min_size=1, max_size=6), damage)
@example([{"i": 0, "s": "", "n": "a", "o": 1, "b": True, "x": b"", "l": 1}], [(0, 2, 1, b"\x04")])
def test_damage_never_becomes_a_wrong_row(wanted: list[dict[str, Any]], hits: list[tuple[int, int, int, bytes]]) -> None:
    values = [encode(PLAIN, row) for row in wanted]
    for message, at, cut, instead in hits:
        index = message % len(values)
        at %= len(values[index]) + 1
        values[index] = values[index][:at] + instead + values[index][at + cut :]
    decode(avro_stream(PLAIN), values)
    decoded = decoder_for(avro_stream(PLAIN)).decode(list(values))
    assert sorted([*decoded.rows, *decoded.bad]) == list(range(len(values)))
    rows_by_message = dict(zip(decoded.rows, rows_of(decoded), strict=True))
    for index, value in enumerate(values):
        strict = read_strictly(PLAIN, value)
        if strict is None or not -(2**31) <= strict["i"] < 2**31:
            assert index in decoded.bad, (value, rows_by_message.get(index))
        else:
            assert rows_by_message.get(index) == strict, decoded.bad.get(index)


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_no_bytes_fail_a_batch(values: list[bytes]) -> None:
    for avsc in (LINEAGE, FLAT, RICH):
        decode(avro_stream(avsc), values)


def test_fields_of_records_are_found_by_name() -> None:
    """The table's struct has its fields in another order, and an additional one at its end."""

    def stream_of(*names: str) -> Stream:
        fields = [{"name": name, "type": "int"} for name in names]
        return avro_stream(record(("s", {"type": "record", "name": "Inner", "fields": fields})))

    decoder = decoder_of(stream_of("new", "a"), schema_of(stream_of("a", "gone", "new")))
    assert decoder.decode([zigzag(1) + zigzag(2)]).columns["s"].to_pylist() == [{"a": 2, "gone": None, "new": 1}]


def test_columns_have_the_types_of_the_table() -> None:
    stream = avro_stream(FLAT)
    schema = schema_of(stream)
    row = {"i": 1, "l": 2, "f": 0.5, "d": 0.25, "b": True, "s": "s", "x": b"x", "n": None, "o": 1, "day": date(2026, 1, 1)}
    row |= {"ms": datetime(2026, 1, 1, tzinfo=UTC), "us": None, "id": "u", "inner": {"a": 1, "z": "z"}}
    decoded = decoder_for(stream).decode([encode(FLAT, row)])
    assert {name: column.type for name, column in decoded.columns.items()} == {
        column.name: schema.field(column.name).type for column in stream.columns
    }
    assert pa.table(dict(decoded.columns)).num_rows == 1
