"""Decode JSON strictly: a value fits its column exactly, or its row is refused with a reason."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.landing.decode import decoder_of
from tests.landing.streams import decode, decoder_for, json_stream, schema_of

UTC = timezone.utc
NOON = datetime(2026, 2, 24, 12, tzinfo=UTC)


def decode_one(ddl: str, value: bytes | None, **options: Any) -> tuple[dict[str, Any] | None, str]:
    """Decode one message between two good ones, which must not be affected."""
    stream = json_stream(ddl, **options)
    rows, bad = decode(stream, [b"{}", value, b"{}"])
    assert set(bad) <= {1}
    assert len(rows) == 3 - len(bad)
    return (rows[1] if not bad else None), bad.get(1, "")


def field(kind: str, text: str, **options: Any) -> Any:
    row, reason = decode_one(f"v {kind}", f'{{"v": {text}}}'.encode(), **options)
    assert row is not None, reason
    return row["v"]


def refusal(kind: str, text: str, **options: Any) -> str:
    row, reason = decode_one(f"v {kind}", f'{{"v": {text}}}'.encode(), **options)
    assert row is None, row
    return reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"v": 1', "malformed JSON"),
        (b"not json", "malformed JSON"),
        (b'{"v": 1} trailing', "malformed JSON"),
        (b'{"v": NaN}', "malformed JSON"),
        (b"[1]", "wrong type"),
        (b"null", "wrong type"),
        (b'{"v": "1"}', "wrong type"),
        (b'{"v": 1.5}', "wrong type"),
        (b'{"v": true}', "wrong type"),
        (b'{"v": 9223372036854775808}', "overflow"),
        (b'{"v": -9223372036854775809}', "overflow"),
        (b'{"v": 1' + b"0" * 400 + b"}", "overflow"),
        (b'{"s": "\xff\xfe"}', "invalid UTF-8"),
        (b'{"s": "\xed\xa0\x80"}', "invalid UTF-8"),
        (b'{"unknown": "\xff"}', "invalid UTF-8"),
        (b'{"\xff": 1}', "invalid UTF-8"),
        (b"", "empty value"),
        (None, "empty value"),
        (b"   ", "malformed JSON"),
    ],
)
def test_bad_message_is_refused_with_its_reason(value: bytes | None, reason: str) -> None:
    row, quarantine_reason = decode_one("v BIGINT, s STRING", value)
    assert row is None
    assert quarantine_reason.startswith(reason), quarantine_reason


@pytest.mark.parametrize("value", [b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' * 50_000 + b"1" + b"}" * 50_000])
def test_nesting_without_end_is_malformed(value: bytes) -> None:
    row, reason = decode_one("v BIGINT", value)
    assert row is None
    assert reason.startswith("malformed JSON"), reason


def test_reasons_name_the_place() -> None:
    assert "`$.v`" in refusal("INT", "3000000000")
    assert "`$.v" in refusal("STRUCT<a: STRUCT<b: INT>>", '{"a": {"b": "x"}}')
    assert "b" in refusal("STRUCT<a: STRUCT<b: DATE>>", '{"a": {"b": "x"}}')


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT", "2147483647", 2147483647),
        ("INT", "-2147483648", -2147483648),
        ("BIGINT", "9223372036854775807", 9223372036854775807),
        ("BIGINT", "-9223372036854775808", -9223372036854775808),
        ("DOUBLE", "1e308", 1e308),
        ("DOUBLE", "3", 3.0),
        ("FLOAT", "0.5", 0.5),
        ("BOOLEAN", "false", False),
        ("STRING", '"\\u00e9\\ud83d\\ude00\\u0000"', "é😀\x00"),
        ("STRING", '""', ""),
        ("BINARY", '"AP8="', b"\x00\xff"),
        ("DATE", '"2024-02-29"', date(2024, 2, 29)),
        ("DATE", '"0001-01-01"', date(1, 1, 1)),
        ("DATE", '"9999-12-31"', date(9999, 12, 31)),
        ("DATE", '"20240229"', date(2024, 2, 29)),
        ("INT", "null", None),
        ("INT", "55.0", 55),
        ("INT", "-2147483647.0", -2147483647),
        ("INT", "1e3", 1000),
        ("BIGINT", "9007199254740993.0", 2**53 + 1),
        ("BIGINT", "-9223372036854775808.00", -(2**63)),
        ("BIGINT", "1e18", 10**18),
        ("BIGINT", "-0.0", 0),
        ("ARRAY<INT>", "[1, 2.0, null]", [1, 2, None]),
        ("MAP<STRING, BIGINT>", '{"a": 2.0, "b": 3}', [("a", 2), ("b", 3)]),
        ("STRUCT<a: INT, b: DOUBLE>", '{"a": 2.0, "b": 2.5}', {"a": 2, "b": 2.5}),
        ("STRING", '"a\\ud800b"', "a\\ud800b"),
        ("STRING", '"\\uDC00\\ud83d\\ude00\\\\ud800"', "\\uDC00😀\\ud800"),
        ("DECIMAL(10,2)", "12.3", Decimal("12.30")),
        ("DECIMAL(10,2)", '"12.30"', Decimal("12.30")),
        ("DECIMAL(10,2)", "1e3", Decimal("1000.00")),
        ("DECIMAL(38,9)", "12345678901234567890123456789.123456789", Decimal("12345678901234567890123456789.123456789")),
        ("DECIMAL(18,2)", "0.1", Decimal("0.10")),
        ("DECIMAL(18,2)", "-0.07", Decimal("-0.07")),
        ("DECIMAL(18,2)", "12.340000", Decimal("12.34")),
    ],
)
def test_values_are_exact(kind: str, text: str, value: object) -> None:
    assert field(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("INT", "2147483648", "overflow"),
        ("INT", "2147483648.0", "overflow"),
        ("INT", "55.5", "wrong type: Expected `int`, got `float` - at `$.v`"),
        ("BIGINT", "1e19", "overflow"),
        ("BIGINT", "9223372036854775808.0", "overflow"),
        ("BIGINT", "1.0e999999999", "overflow"),
        ("BIGINT", "1e-999999999", "wrong type"),
        ("BIGINT", "55.00000000000000000001", "wrong type"),
        ("ARRAY<INT>", "[1, 2.5]", "wrong type"),
        ("STRUCT<a: INT>", '{"a": 2.5}', "wrong type: Expected `int`, got `float` - at `$.v.a`"),
        ("DATE", '"20230229"', "bad timestamp"),
        ("DATE", '"20240229T10"', "bad timestamp"),
        ("FLOAT", "1e39", "overflow"),
        ("DOUBLE", "1e400", "overflow"),
        ("DECIMAL(5,2)", "1000.00", "overflow"),
        ("DECIMAL(5,2)", "0.001", "overflow"),
        ("DECIMAL(5,2)", "1E-999999999", "overflow"),
        ("DECIMAL(5,2)", "1E+999999999", "overflow"),
        ("DECIMAL(5,2)", '"-1E-999999999999"', "overflow"),
        ("DECIMAL(5,2)", '"NaN"', "overflow"),
        ("DECIMAL(5,2)", '"Infinity"', "overflow"),
        ("DECIMAL(5,2)", '"twelve"', "wrong type"),
        ("BINARY", '"no base64!"', "wrong type"),
        ("DATE", '"2023-02-29"', "bad timestamp"),
        ("DATE", '"0000-01-01"', "bad timestamp"),
        ("DATE", "20000", "wrong type"),
        ("BOOLEAN", "1", "wrong type"),
        ("STRING", "1", "wrong type"),
        ("ARRAY<INT>", '{"a": 1}', "wrong type"),
        ("ARRAY<DATE>", '["2024-01-01", "x"]', "bad timestamp"),
        ("MAP<STRING, INT>", '{"a": 3000000000}', "overflow"),
        ("MAP<STRING, DECIMAL(3,1)>", '{"a": 1, "b": 1000}', "overflow"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, text: str, reason: str) -> None:
    assert refusal(kind, text).startswith(reason)


@pytest.mark.parametrize(
    ("text", "unit", "moment"),
    [
        ('"2026-02-24T12:00:00Z"', "ms", NOON),
        ('"2026-02-24T12:00:00+00:00"', "ms", NOON),
        ('"2026-02-24T13:30:00+01:30"', "ms", NOON),
        ('"2026-02-24T04:00:00-0800"', "ms", NOON),
        ('"2026-02-24T04:00:00-08"', "ms", NOON),
        ('"2026-02-24 12:00:00"', "ms", NOON),
        ('"2026-02-24T12:00"', "ms", NOON),
        ('"2026-02-24"', "ms", NOON.replace(hour=0)),
        ('"20260224T120000Z"', "ms", NOON),
        ('"20260224T133000+0130"', "ms", NOON),
        ('"20260224T133000+01:30"', "ms", NOON),
        ('"20260224T040000-08"', "ms", NOON),
        ('"20260224T120000"', "ms", NOON),
        ('"20260224T1200Z"', "ms", NOON),
        ('"20260224T12Z"', "ms", NOON),
        ('"20260224"', "ms", NOON.replace(hour=0)),
        ('"20260224T120000.123456789Z"', "ms", NOON.replace(microsecond=123_456)),
        ('"2026-02-24T12:00:00.5Z"', "ms", NOON.replace(microsecond=500_000)),
        ('"2026-02-24T12:00:00.123456Z"', "ms", NOON.replace(microsecond=123_456)),
        ('"2026-02-24T12:00:00.123456789Z"', "ms", NOON.replace(microsecond=123_456)),
        ('"2026-02-24T12:00:00.1234567890123+01:00"', "ms", NOON.replace(hour=11, microsecond=123_456)),
        ("1771934400000", "ms", NOON),
        ("1771934400000.25", "ms", NOON.replace(microsecond=250)),
        ("1771934400", "s", NOON),
        ("1771934400.123456", "s", NOON.replace(microsecond=123_456)),
        ("1771934400000001", "us", NOON.replace(microsecond=1)),
        ("-1", "ms", datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("0", "s", datetime(1970, 1, 1, tzinfo=UTC)),
        ('"0001-01-01T00:00:00Z"', "ms", datetime(1, 1, 1, tzinfo=UTC)),
        ('"9999-12-31T23:59:59.999999Z"', "ms", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ],
)
def test_decoder_reads_timestamps_of_each_unit(text: str, unit: Any, moment: datetime) -> None:
    assert field("TIMESTAMP", text, epoch_unit=unit) == moment
    assert field("TIMESTAMP_NTZ", text, epoch_unit=unit) == moment.replace(tzinfo=None)


@pytest.mark.parametrize(
    "text",
    [
        '"yesterday"',
        '""',
        '"2026-13-01T00:00:00Z"',
        '"2026-02-30"',
        '"2026-02-24T25:00:00Z"',
        '"20261301T000000Z"',
        '"20260230"',
        '"20260224T250000Z"',
        '"2026022"',
        '"20260224T12000"',
        '"2026-02-24T12:00:60Z"',
        '"0000-12-31T00:00:00Z"',
        '"9999-12-31T23:59:59-10:00"',
        '"0001-01-01T00:00:00+10:00"',
        "9223372036854775807",
        "-9223372036854775808",
        "1e300",
        '"1771934400000"',
    ],
)
def test_decoder_quarantines_bad_timestamps(text: str) -> None:
    assert refusal("TIMESTAMP", text).startswith("bad timestamp")
    assert refusal("TIMESTAMP_NTZ", text).startswith("bad timestamp")
    assert refusal("STRUCT<at: TIMESTAMP>", f'{{"at": {text}}}').startswith("bad timestamp")


def test_moments_of_all_kinds_in_one_batch() -> None:
    texts = [
        '"2026-02-24T12:00:00Z"',
        "1771934400000",
        '"2026-02-24 12:00:00"',
        "null",
        '"nonsense"',
        '"2026-02-24T13:00:00+01:00"',
    ]
    rows, bad = decode(json_stream("v TIMESTAMP"), [f'{{"v": {text}}}'.encode() for text in texts])
    assert [row["v"] for row in rows] == [NOON, NOON, NOON, None, NOON]
    assert list(bad) == [4]


def test_fields_that_the_schema_does_not_name_are_kept_as_they_were_sent() -> None:
    ddl = "id INT, who STRUCT<name: STRING>, tags ARRAY<STRUCT<k: STRING>>, by MAP<STRING, STRUCT<n: INT>>"
    stream = json_stream(ddl)
    value = (
        b'{"id":1,"price":1.10,"big":123456789012345678901234567890,"who":{"name":"a","age":3},'
        b'"tags":[{"k":"x"},{"k":"y","v":[1, 2]}],"by":{"m":{"n":1,"o":null}},"id2":"\\u00e9\xc3\xa9"}'
    )
    decoded_rows, bad = decode(stream, [b'{"id":0}', value])
    assert bad == {}
    assert decoded_rows[0]["_extra"] is None
    assert decoded_rows[1]["who"] == {"name": "a"}
    text = decoded_rows[1]["_extra"]
    assert '"price":1.10' in text, "digits are unchanged"
    assert json.loads(text) == {
        "price": 1.1,
        "big": 123456789012345678901234567890,
        "who.age": 3,
        "tags[1].v": [1, 2],
        "by.m.o": None,
        "id2": "éé",
    }


def test_extra_fields_are_counted_by_path() -> None:
    stream = json_stream("tags ARRAY<STRUCT<k: STRING>>")
    decoded = decoder_for(stream).decode([b'{"tags":[{"x":1},{"x":2}]}', b'{"y":1}', b'{"y":2}'])
    assert dict(decoded.extras) == {"tags.x": 2, "y": 2}


def test_required_columns_refuse_null_and_absence() -> None:
    stream = json_stream("id INT NOT NULL, s STRUCT<a: INT NOT NULL>")
    rows, bad = decode(stream, [b'{"id":1}', b"{}", b'{"id":null}', b'{"id":1,"s":{}}', b'{"id":1,"s":null}'])
    assert [row["id"] for row in rows] == [1, 1]
    assert {index: reason.split(":")[0] for index, reason in bad.items()} == {1: "wrong type", 2: "wrong type", 3: "wrong type"}


def test_message_with_unnamed_fields_is_as_strict_about_integers() -> None:
    stream = json_stream("v BIGINT NOT NULL, w INT")
    values = [
        *(b'{"v": 2.0, "w": 3.0, "x": 1.50}', b'{"v": 2.5, "x": 1}', b'{"v": "2", "x": 1}', b'{"v": null, "x": 1}'),
        *(b'{"v": true, "x": 1}', b'{"v": 9223372036854775808, "x": 1}', b'{"v": 1, "w": null, "x": 1}', b'{"x": 1}'),
    ]
    rows, bad = decode(stream, values)
    assert [(row["v"], row["w"], row["_extra"]) for row in rows] == [(2, 3, '{"x":1.50}'), (1, None, '{"x":1}')]
    assert {index: reason.split(":")[0] for index, reason in bad.items()} == {
        **dict.fromkeys((1, 2, 3, 4, 7), "wrong type"),
        5: "overflow",
    }


def test_decoder_reads_nested_values() -> None:
    lists = "l ARRAY<ARRAY<INT>>, m MAP<STRING, ARRAY<STRUCT<d: DECIMAL(5,2), at: TIMESTAMP>>>"
    ddl = f"{lists}, s STRUCT<a: STRUCT<b: MAP<STRING, INT>>>"
    values: list[dict[str, Any]] = [
        {"l": [[1, None], [], None], "m": {"x": [{"d": "1.50", "at": 0}, None]}, "s": {"a": {"b": {"k": 1, "z": None}}}},
        {"l": None, "m": None, "s": None},
        {"l": [], "m": {}, "s": {"a": None}},
        {"l": [[]], "m": {"y": None, "z": []}, "s": {"a": {"b": {}}}},
    ]
    rows, bad = decode(json_stream(ddl), [json.dumps(value).encode() for value in values])
    assert bad == {}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert rows[0]["l"] == [[1, None], [], None]
    assert rows[0]["m"] == [("x", [{"d": Decimal("1.50"), "at": epoch}, None])]
    assert rows[0]["s"] == {"a": {"b": [("k", 1), ("z", None)]}}
    assert (rows[1]["l"], rows[1]["m"], rows[1]["s"]) == (None, None, None)
    assert (rows[2]["l"], rows[2]["m"], rows[2]["s"]) == ([], [], {"a": None})
    assert (rows[3]["l"], rows[3]["m"], rows[3]["s"]) == ([[]], [("y", None), ("z", [])], {"a": {"b": []}})


@pytest.mark.parametrize(
    "kind", ["ARRAY<STRUCT<a: INT>>", "MAP<STRING, STRUCT<a: INT, b: ARRAY<STRUCT<c: DATE>>>>", "ARRAY<ARRAY<INT>>"]
)
@pytest.mark.parametrize("text", ["null", "empty"])
def test_batch_of_empty_lists(kind: str, text: str) -> None:
    empty = "[]" if kind.startswith("ARRAY") else "{}"
    assert field(kind, text.replace("empty", empty)) == (None if text == "null" else [])


def test_fields_of_structs_are_found_by_name() -> None:
    """The table's struct has its fields in another order, and an additional one at its end."""
    stream = json_stream("s STRUCT<new: INT, a: INT>, l ARRAY<STRUCT<new: INT, a: INT>>")
    table = schema_of(json_stream("s STRUCT<a: INT, gone: INT, new: INT>, l ARRAY<STRUCT<a: INT, gone: INT, new: INT>>"))
    decoded = decoder_of(stream, table).decode([b'{"s": {"new": 1, "a": 2}, "l": [{"new": 3, "a": 4}]}'])
    assert decoded.columns["s"].to_pylist() == [{"a": 2, "gone": None, "new": 1}]
    assert decoded.columns["l"].to_pylist() == [[{"a": 4, "gone": None, "new": 3}]]


moments = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))
records = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "b": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "x": st.none() | st.binary(),
        "m": st.none() | st.decimals(-(10**15), 10**15, places=4),
        "t": st.none() | moments,
        "day": st.none() | st.dates(),
        "l": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
        "r": st.none() | st.fixed_dictionaries({"k": st.none() | st.booleans()}),
    },
)
DDL = (
    "i INT, b BIGINT, d DOUBLE, s STRING, x BINARY, m DECIMAL(20,4), t TIMESTAMP, day DATE, l ARRAY<INT>, r STRUCT<k: BOOLEAN>"
)
BAD = (b"{", b'{"i": "x"}', b'{"t": "x"}', b'{"m": "1e30"}', b'{"s": "\xff"}', b"", b'{"i": 1e99}', b'{"day": "1-1-1"}')


def encode(record: dict[str, Any]) -> bytes:
    def as_json(value: object) -> str:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return value.isoformat() if isinstance(value, (datetime, date)) else str(value)

    return json.dumps(record, default=as_json, ensure_ascii=False).encode()


@given(st.lists(records | st.sampled_from(BAD), max_size=30))
def test_what_was_encoded_comes_back(wanted: list[dict[str, Any] | bytes]) -> None:
    values = [one if isinstance(one, bytes) else encode(one) for one in wanted]
    rows, bad = decode(json_stream(DDL), values)
    assert set(bad) == {index for index, one in enumerate(wanted) if isinstance(one, bytes)}
    good = [one for one in wanted if not isinstance(one, bytes)]
    for row, record in zip(rows, good, strict=True):
        expected = {name: record.get(name) for name in ("i", "b", "d", "s", "x", "m", "t", "day", "l", "r")}
        if expected["t"] is not None:
            expected["t"] = expected["t"].replace(tzinfo=UTC)
        assert {name: row[name] for name in expected} == expected
        assert row["_extra"] is None


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_no_bytes_fail_a_batch(values: list[bytes]) -> None:
    decode(json_stream(DDL), values)


@given(st.data())
def test_damaged_messages_agree_with_one_by_one(data: st.DataObject) -> None:
    values = [encode(record) for record in data.draw(st.lists(records, min_size=1, max_size=8))]
    index = data.draw(st.integers(0, len(values) - 1))
    at = data.draw(st.integers(0, len(values[index]) - 1))
    values[index] = values[index][:at] + data.draw(st.binary(max_size=3)) + values[index][at + 1 :]
    stream = json_stream(DDL)
    rows, bad = decode(stream, values)
    alone = [decode(stream, [value]) for value in values]
    assert rows == [row for some, _ in alone for row in some]
    assert bad == {index: reasons[0] for index, (_, reasons) in enumerate(alone) if reasons}


def test_time_zone_is_not_lost_over_a_day_line() -> None:
    assert field("TIMESTAMP", '"2026-01-01T00:30:00+14:00"') == datetime(2025, 12, 31, 10, 30, tzinfo=UTC)
    assert field("TIMESTAMP", '"2025-12-31T23:30:00-12:00"') == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
        hours=11, minutes=30
    )
