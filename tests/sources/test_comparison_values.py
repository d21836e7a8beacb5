"""Compare values of Postgres and the lake: equal values are equal, and different ones are not."""

from __future__ import annotations

import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest

from headrace.operations.compare.differences import Difference, Layout, compare_by_key, compare_in_order
from headrace.operations.compare.lake_tables import LakeRow
from headrace.operations.compare.source_tables import SourceColumn
from headrace.operations.compare.values import is_same

AT = datetime(2026, 3, 1, 12, 0, 0, 123456)
EAST = timezone(timedelta(hours=5, minutes=30))

SAME = [
    ("int4", 7, 7),
    ("int8", 2**60, 2**60),
    ("numeric", Decimal("1.10"), Decimal("1.1")),
    ("numeric", Decimal("-0.00000000000000000001"), "-0.00000000000000000001"),
    ("numeric", Decimal("1.23"), {"scale": 2, "value": b"\x7b"}),
    ("numeric", Decimal("NaN"), Decimal("NaN")),
    ("timestamptz", AT.replace(tzinfo=timezone.utc), AT.replace(tzinfo=timezone.utc).astimezone(EAST)),
    ("timestamp", AT, AT.replace(tzinfo=timezone.utc)),
    ("date", date(2026, 3, 1), date(2026, 3, 1)),
    ("time", time(0, 0, 1, 5), "00:00:01.000005"),
    ("uuid", uuid.UUID(int=5), str(uuid.UUID(int=5))),
    ("bytea", b"\x00\xff", b"\x00\xff"),
    ("bytea", b"", memoryview(b"")),
    ("jsonb", '{"a": 1.10, "b": [true, null]}', '{"b":[true,null],"a":1.1}'),
    ("jsonb", "9007199254740993", "9007199254740993"),
    ("_text", ["a", None, ""], ["a", None, ""]),
    ("_int4", [], []),
    ("float4", 0.1, 0.10000000149011612),
    ("float8", float("nan"), float("nan")),
    ("bool", True, True),
    ("order_status", "paid", "paid"),
    ("text", "x" * 1_000_000, "x" * 1_000_000),
    ("text", None, None),
]
DIFFERENT = [
    ("int4", 7, 8),
    ("int4", 1, True),
    ("bool", True, 1),
    ("numeric", Decimal("1.10"), Decimal("1.11")),
    ("timestamptz", AT.replace(tzinfo=timezone.utc), AT.replace(tzinfo=EAST)),
    ("timestamp", AT, AT + timedelta(microseconds=1)),
    ("bytea", b"", None),
    ("jsonb", '{"a": true}', '{"a": 1}'),
    ("jsonb", "9007199254740993", "9007199254740992"),
    ("jsonb", '{"a": "1"}', '{"a": 1}'),
    ("_text", [], None),
    ("_text", [None], []),
    ("_text", ["a", "b"], ["b", "a"]),
    ("_bool", [True], [1]),
    ("text", "", None),
    ("text", "é", "e\u0301"),
    ("float8", 0.1, 0.10000000149011612),
    ("uuid", uuid.UUID(int=5), str(uuid.UUID(int=6))),
]


@pytest.mark.parametrize(("kind", "left", "right"), SAME)
def test_is_same_accepts_equal_values(kind: str, left: object, right: object) -> None:
    assert is_same(left, right, kind=kind)


@pytest.mark.parametrize(("kind", "left", "right"), DIFFERENT)
def test_is_same_rejects_different_values(kind: str, left: object, right: object) -> None:
    assert not is_same(left, right, kind=kind)


COLUMNS = (SourceColumn("id", "int8"), SourceColumn("code", "text"), SourceColumn("added", "text"))
LAYOUT = Layout.of(COLUMNS, ["code", "id", "_lsn", "gone"], keys=["id"])


def test_compare_in_order_and_by_key_find_the_same_differences() -> None:
    source = [(1, "a", None), (2, "b", None), (4, "d", None), (5, "e", "new"), (7, "g", None)]
    lake = [LakeRow((1, "a"), 10), LakeRow((2, "B"), 20), LakeRow((3, "c"), 30), LakeRow((5, "e"), 50), LakeRow((8, "h"), 80)]
    expected = [
        Difference((2,), ("code",), 20),
        Difference((3,), lsn=30),
        Difference((4,)),
        Difference((5,), ("added",), 50),
        Difference((7,)),
        Difference((8,), lsn=80),
    ]
    assert list(compare_in_order(source, lake, layout=LAYOUT)) == expected
    wanted = [(number,) for number in (1, 2, 3, 4, 5, 6, 7, 8)]
    assert list(compare_by_key(reversed(source), lake, layout=LAYOUT, wanted=wanted)) == expected


def test_compare_in_order_raises_on_a_duplicate_key() -> None:
    with pytest.raises(Exception, match="two rows have the key 1"):
        list(compare_in_order([(1, "a", None)], [LakeRow((1, "a"), 1), LakeRow((1, "b"), 2)], layout=LAYOUT))
