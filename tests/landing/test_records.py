"""Turn record batches into messages, for any content and storage format, and drop uncommitted records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import LandingError, UnavailableError
from headrace.kafka.records import Frames, Position, RecordBatch, Records, next_offset, split_batches, split_messages
from tests.landing.stored import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    MOMENT,
    SNAPPY,
    TRANSACTIONAL,
    XERIAL,
    ZSTD,
    Stored,
    batch_of,
    records_of,
    store,
    store_marker,
)

Row = tuple[int, int, int, bytes | None]


def at(start: int = 0, end: int = 1_000_000) -> Position:
    return Position("things", 3, start, end)


def rows_of(batches: list[RecordBatch], *, rows: int = 1000) -> list[Row]:
    """Return partition, offset, time and value of each message."""
    records = Records("things")
    for batch in batches:
        records.add(batch)
    return [
        (place["partition"], place["offset"], place["timestamp"], value)
        for messages in split_messages(records, rows=rows)
        for place, value in zip(messages.places.to_pylist(), messages.values, strict=True)
    ]


def offsets(data: bytes, position: Position, aborted: list[tuple[int, int]] | None = None) -> list[int]:
    batches = list(split_batches(data, position, aborted or []))
    return [row[1] for row in rows_of(batches)] if batches else []


VALUES = [f"value {number}".encode() * 20 for number in range(200)]


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, XERIAL, LZ4, ZSTD])
def test_split_batches_decompresses_every_codec(codec: int) -> None:
    data = store(records_of(VALUES), codec=codec) + store(records_of(VALUES), base_offset=200)
    (first, second) = split_batches(data, at(), [])
    assert bytes(first.records) == bytes(second.records)
    assert [row[3] for row in rows_of([first, second])] == VALUES * 2


def test_decompress_raises_on_an_unknown_codec() -> None:
    with pytest.raises(ValueError, match="codec 5"):
        list(split_batches(store([Stored(b"v", 0)], flags=5), at(), []))


def test_walk_records_skips_keys_headers_and_null_values() -> None:
    plain = [Stored(b"a", 0), Stored(b"b", 1, 7)]
    keyed = [Stored(b"a", 0, key=b"k" * 100), Stored(b"b", 1, 7, key=b"")]
    mixed = [Stored(b"a", 0, key=b"k"), Stored(None, 1, 7), Stored(b"", 5, -3, key=b"k")]
    headed = [Stored(b"a", 0, headers=[("name", b"x" * 300)]), Stored(b"b", 1, headers=[("a", b""), ("b", b"2")])]
    shapes = {"plain": plain, "keyed": keyed, "mixed": mixed, "headed": headed}
    for name, records in shapes.items():
        wanted = [(0, 50 + record.offset, MOMENT + record.time, record.value) for record in records]
        assert rows_of([batch_of(records, base_offset=50)]) == wanted, name
    together = [batch_of(records, base_offset=10 * index, partition=index) for index, records in enumerate(shapes.values())]
    assert [(row[0], row[3]) for row in rows_of(together, rows=2)] == [
        (index, record.value) for index, records in enumerate(shapes.values()) for record in records
    ]


def test_frames_read_plain_and_keyed_records_in_one_pass() -> None:
    """Otherwise the tests that compare both paths would compare one path with itself."""
    assert Frames().read([batch_of([Stored(b"a", 0), Stored(b"b", 1)])]) is not None
    assert Frames().read([batch_of([Stored(b"a", 0, key=b"k"), Stored(b"b", 1, key=b"")])]) is not None
    assert Frames().read([batch_of([Stored(b"a", 0, key=b"k"), Stored(b"b", 1)])]) is None
    assert Frames().read([batch_of([Stored(b"a", 0, headers=[("n", b"v")])])]) is None
    assert Frames().read([batch_of([Stored(None, 0)])]) is None


records = st.builds(
    Stored,
    value=st.none() | st.binary(max_size=80),
    offset=st.just(0),
    time=st.integers(-(2**40), 2**40),
    key=st.none() | st.binary(max_size=80),
    headers=st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2),
)


@given(st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_split_messages_returns_any_records(shape: list[list[Stored]], plain: bool, keyed: bool) -> None:
    batches = []
    wanted: list[Row] = []
    for index, batch in enumerate(shape):
        some = [
            Stored(
                record.value or b"" if plain else record.value,
                2 * offset,
                record.time,
                (record.key or b"" if keyed else None) if plain else record.key,
                () if plain else record.headers,
            )
            for offset, record in enumerate(batch)
        ]
        batches.append(batch_of(some, base_offset=100 * index, partition=index))
        wanted += [(index, 100 * index + one.offset, MOMENT + one.time, one.value) for one in some]
    assert rows_of(batches) == wanted


def test_split_batches_cuts_batches_at_the_range() -> None:
    data = store(records_of(VALUES), base_offset=100) + store(records_of(VALUES), base_offset=300)
    assert next_offset(data, at(150, 320)) == 500
    assert offsets(data, at(150, 320)) == list(range(150, 320))
    assert offsets(data, at(300, 301)) == [300]
    assert offsets(data, at(500, 600)) == []
    assert offsets(data, at(0, 100)) == []


def test_split_batches_ignores_an_incomplete_batch() -> None:
    first, second = store(records_of(VALUES)), store(records_of(VALUES), base_offset=200)
    for size in (1, 11, 60, 61, len(second) - 1):
        assert next_offset(first + second[:size], at()) == 200
        assert offsets(first + second[:size], at()) == list(range(200))
    assert next_offset(second[:500], at(200)) == 200


def test_split_batches_reads_gaps_of_a_compacted_topic() -> None:
    left = [Stored(b"a", 3, key=b"k"), Stored(b"b", 9, key=b"l")]
    data = store(left, base_offset=100, last_delta=20) + store([], base_offset=121, last_delta=40)
    assert next_offset(data, at(100)) == 162, "records that are gone still count"
    assert offsets(data, at(100)) == [103, 109]


def test_split_messages_uses_the_log_append_time() -> None:
    data = store([Stored(b"a", 0, 5), Stored(b"b", 1, 6)], flags=LOG_APPEND_TIME, largest_time=MOMENT + 77)
    data += store([Stored(b"c", 0, 5)], base_offset=2)
    assert [row[2] for row in rows_of(list(split_batches(data, at(), [])))] == [MOMENT + 77, MOMENT + 77, MOMENT + 5]


def test_split_batches_drops_an_aborted_transaction() -> None:
    """Their batches alternate; the second commits, then the first commits another transaction."""

    def sent(base: int, producer: int) -> bytes:
        return store(records_of([b"x", b"y"]), base_offset=base, flags=TRANSACTIONAL, producer=producer)

    data = b"".join(
        (
            sent(0, 1),
            sent(2, 2),
            sent(4, 1),
            store(records_of([b"n"]), base_offset=6),
            store_marker(base_offset=7, producer=1, commit=False, time=-(2**40)),
            sent(8, 1),
            store_marker(base_offset=10, producer=2, commit=True),
            store_marker(base_offset=11, producer=1, commit=True),
        )
    )
    assert offsets(data, at(), [(1, 0)]) == [2, 3, 6, 8, 9]
    assert offsets(data, at(), [(1, 8), (1, 0)]) == [2, 3, 6]
    assert offsets(data, at(5), [(1, 0)]) == [6, 8, 9], "read from the middle of what was aborted"
    assert offsets(data, at()) == [0, 1, 2, 3, 4, 5, 6, 8, 9], "markers are no messages"
    assert next_offset(data, at()) == 12


def test_split_batches_raises_on_a_damaged_batch() -> None:
    data = bytearray(store(records_of(VALUES)))
    data[500] ^= 1
    with pytest.raises(UnavailableError, match="checksum"):
        list(split_batches(bytes(data), at(), []))


def test_next_offset_raises_on_an_old_message_format() -> None:
    data = bytearray(store(records_of(VALUES)))
    data[16] = 1
    with pytest.raises(LandingError, match="message format 1"):
        list(split_batches(bytes(data), at(), []))
