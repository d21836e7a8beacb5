"""Avro with and without Confluent framing in one topic, and ambiguous messages."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NotFoundError, UnavailableError
from headrace.kafka.schemas import Registry
from headrace.landing.decode import Decoder, decoder_of
from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.changes import ChangesDecoder
from headrace.landing.decode.framed import FramedAvroDecoder
from headrace.spec.loading.avro import parse_avro
from headrace.spec.problems import Place, Problems
from tests.kafka.played_registry import play_registry
from tests.landing.streams import avro_stream, decode_stored, rows_of, schema_of


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


READER = record(
    field("id", "string"),
    field("amount", "double", aliases=["total"]),
    field("note", ["null", "string"], default=None),
    field("currency", "string", default="EUR"),
)
V1 = record(field("id", "string"), field("total", "int"))
V2 = record(field("total", "float"), field("id", "string"), field("note", ["string", "null"]), field("added", "long"))
STRANGE = record(field("id", "long"), field("amount", "double"), name="Parcel")


class Schemas(Registry):
    """A registry with these schemas, from id 1 on. `away` simulates an outage. `asked` counts requests."""

    def __init__(self, *schemas: str) -> None:
        self._texts = schemas
        self.away = False
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        if self.away:
            raise UnavailableError("the schema registry does not answer: refused")
        if not 1 <= schema_id <= len(self._texts):
            raise NotFoundError(f"the registry has no schema {schema_id}")
        return self._texts[schema_id - 1]


def encode(avsc: str, event: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(avsc)), event)
    return out.getvalue()


def frame(schema_id: int, body: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def decoder(registry: Registry | None, *, reader: str = READER, is_certain: bool = False) -> FramedAvroDecoder:
    schema = schema_of(avro_stream(reader))
    return FramedAvroDecoder(reader, schema=schema, registry=registry, is_certain=is_certain)


def decode(how: Decoder, values: list[bytes | None]) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    decoded = how.decode(values)
    assert sorted([*decoded.rows, *decoded.bad]) == list(range(len(values)))
    assert list(decoded.rows) == sorted(decoded.rows)
    assert all(len(column) == len(decoded.rows) for column in decoded.columns.values())
    return dict(zip(decoded.rows, rows_of(decoded), strict=True)), dict(decoded.bad)


PLAIN = encode(READER, {"id": "p", "amount": 1.5, "note": None, "currency": "USD"})


def test_several_schemas_and_plain_messages_in_one_topic() -> None:
    values: list[bytes | None] = [
        frame(1, encode(V1, {"id": "a", "total": 5})),
        PLAIN,
        frame(2, encode(V2, {"id": "b", "total": 0.25, "note": "n", "added": 9})),
        frame(3, encode(READER, {"id": "c", "amount": 2.5, "note": "x", "currency": "GBP"})),
        frame(1, encode(V1, {"id": "d", "total": -1})),
    ]
    rows, bad = decode(decoder(Schemas(V1, V2, READER)), values)
    assert bad == {}
    assert [rows[index] for index in range(5)] == [
        {"id": "a", "amount": 5.0, "note": None, "currency": "EUR"},
        {"id": "p", "amount": 1.5, "note": None, "currency": "USD"},
        {"id": "b", "amount": 0.25, "note": "n", "currency": "EUR"},
        {"id": "c", "amount": 2.5, "note": "x", "currency": "GBP"},
        {"id": "d", "amount": -1.0, "note": None, "currency": "EUR"},
    ]


GOOD = frame(1, encode(V1, {"id": "a", "total": 5}))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty value"),
        (b"", "empty value"),
        (GOOD[:-1], "truncated Avro"),
        (GOOD + b"\x00", "malformed Avro: 1 byte is left"),
        (frame(9, GOOD[5:]), "unknown schema: the registry has no schema 9; as plain Avro: "),
        (
            frame(2, encode(STRANGE, {"id": 5, "amount": 1.0})),
            "schema does not fit: of schema 2, `id` is long, and the stream's",
        ),
        (PLAIN[:-1], "truncated Avro"),
        (b"\x00\x00", "truncated Avro"),
    ],
)
def test_bad_message_is_refused_with_its_reason(value: bytes | None, reason: str) -> None:
    rows, bad = decode(decoder(Schemas(V1, STRANGE)), [GOOD, value, PLAIN])
    assert (sorted(rows), list(bad)) == ([0, 2], [1])
    assert bad[1].startswith(reason), bad[1]


def test_schema_that_does_not_fit_is_reported_once() -> None:
    values: list[bytes | None] = [frame(2, encode(STRANGE, {"id": 5, "amount": 1.0}))] * 3
    decoded = decoder(Schemas(V1, STRANGE)).decode(values)
    assert len(decoded.refused) == 1
    assert decoded.refused[0].startswith("schema does not fit: of schema 2")


@pytest.mark.parametrize("is_certain", [False, True])
def test_frame_without_a_registry_says_so_and_what_to_do(is_certain: bool) -> None:
    rows, bad = decode(decoder(None, is_certain=is_certain), [GOOD, PLAIN])
    assert list(rows) == ([] if is_certain else [1])
    assert bad[0].startswith(
        "no registry: the message is Confluent-framed (schema 1), and no schema registry is configured; set registry.url"
        " (HEADRACE_REGISTRY_URL), then run: headrace replay PIPELINE --quarantined"
    )
    if is_certain:
        assert bad[1].startswith("not Confluent-framed: ")


NUMBERS = record(field("a", "int"), field("b", "int"), field("c", "int"), field("d", "int"), field("e", "bytes"))
"""As plain Avro, a frame of schema 10 with five bytes after it is four zeros and five bytes."""
BOTH = frame(10, bytes([2, 4, 6, 8, 0]))


def test_message_that_reads_both_ways_is_refused_and_not_guessed() -> None:
    how = decoder(Schemas(*[NUMBERS] * 10), reader=NUMBERS)
    rows, bad = decode(how, [BOTH, frame(10, bytes([2, 4, 6, 8, 2, 65]))])
    assert rows == {1: {"a": 1, "b": 2, "c": 3, "d": 4, "e": b"A"}}
    assert bad[0].startswith("ambiguous Avro: the message reads both as plain and as Confluent-framed; set framing: ")


def test_block_of_messages_that_read_both_ways_is_not_taken_for_plain() -> None:
    how = decoder(Schemas(*[NUMBERS] * 10), reader=NUMBERS)
    assert decode_stored(how, [BOTH, BOTH]) is None
    assert decode_stored(decoder(Schemas(*[NUMBERS] * 9), reader=NUMBERS), [BOTH, BOTH]) is not None


def test_framing_decides_what_reads_both_ways() -> None:
    schema = schema_of(avro_stream(NUMBERS))
    certain = FramedAvroDecoder(NUMBERS, schema=schema, registry=Schemas(*[NUMBERS] * 10), is_certain=True)
    assert decode(certain, [BOTH])[0] == {0: {"a": 1, "b": 2, "c": 3, "d": 4, "e": b""}}
    assert decode(AvroDecoder(NUMBERS, schema=schema), [BOTH])[0] == {
        0: {"a": 0, "b": 0, "c": 0, "d": 0, "e": bytes([2, 4, 6, 8, 0])}
    }


def test_plain_messages_that_start_with_a_zero_stay_plain() -> None:
    """Null is the first branch of most unions, so such messages are common; they must not cost a registry request each."""
    avsc = record(field("a", ["null", "int"]), field("b", ["null", "long"]), field("at", "long"), field("s", "string"))
    events = [{"a": None, "b": None, "at": 1_700_000_000_000 + number, "s": "x"} for number in range(5_000)]
    values: list[bytes | None] = [encode(avsc, event) for event in events]
    registry = Schemas(V1, V2)
    how = decoder(registry, reader=avsc)
    block = decode_stored(how, values)
    assert block is not None
    assert block.columns["at"].to_pylist() == [event["at"] for event in events]
    rows, bad = decode(how, values)
    assert (bad, [rows[index] for index in range(5_000)]) == ({}, events)
    assert len(registry.asked) <= 128


def test_registry_that_is_away_stops_frames_but_not_plain_messages() -> None:
    avsc = record(field("a", ["null", "int"]), field("b", ["null", "long"]), field("s", "string"))
    registry = Schemas(avsc)
    registry.away = True
    plain = encode(avsc, {"a": None, "b": None, "s": "abc"})
    assert plain[:2] == b"\x00\x00"
    how = decoder(registry, reader=avsc)
    assert decode_stored(how, [plain]) is not None
    assert decode(how, [plain])[1] == {}
    with pytest.raises(UnavailableError):
        how.decode([frame(1, encode(avsc, {"a": 1, "b": 2, "s": "x"}))])


def test_schema_is_resolved_once_for_its_id() -> None:
    registry = Schemas(V1)
    how = decoder(registry)
    for _ in range(3):
        assert decode(how, [GOOD, GOOD])[1] == {}
    assert registry.asked == [1]


def test_unknown_schema_is_asked_for_again() -> None:
    registry = Schemas(V1)
    how = decoder(registry)
    late = frame(2, encode(V2, {"id": "b", "total": 0.25, "note": None, "added": 9}))
    assert list(decode(how, [late])[1]) == [0]
    registry._texts = (V1, V2)
    assert decode(how, [late])[1] == {}


def test_streams_framing_chooses_the_decoder() -> None:
    stream = avro_stream(READER)
    schema = schema_of(stream)
    assert isinstance(decoder_of(replace(stream, framing="none"), schema, registry_url="http://x"), AvroDecoder)
    with play_registry() as server:
        server.add(1, V1)
        for framing in ("auto", "confluent"):
            how = decoder_of(replace(stream, framing=framing), schema, registry_url=server.url)
            assert decode(how, [GOOD])[1] == {}
    assert replace(stream, framing="none").may_need_registry is False
    assert stream.may_need_registry is True


@given(st.lists(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: GOOD[:5] + tail), max_size=8))
def test_no_bytes_fail_a_batch(values: list[bytes]) -> None:
    for is_certain in (False, True):
        for registry in (Schemas(V1), None):
            decode(decoder(registry, is_certain=is_certain), [GOOD, *values, PLAIN])


INTEROP = json.dumps(
    {
        "type": "record",
        "name": "Interop",
        "namespace": "org.apache.avro",
        "fields": [
            {"name": "intField", "type": "int"},
            {"name": "longField", "type": "long"},
            {"name": "stringField", "type": "string"},
            {"name": "boolField", "type": "boolean"},
            {"name": "floatField", "type": "float"},
            {"name": "doubleField", "type": "double"},
            {"name": "bytesField", "type": "bytes"},
            {"name": "nullField", "type": "null"},
            {"name": "arrayField", "type": {"type": "array", "items": "double"}},
            {
                "name": "mapField",
                "type": {
                    "type": "map",
                    "values": {"type": "record", "name": "Foo", "fields": [{"name": "label", "type": "string"}]},
                },
            },
            {"name": "unionField", "type": ["boolean", "double", {"type": "array", "items": "bytes"}]},
            {"name": "enumField", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
            {"name": "fixedField", "type": {"type": "fixed", "name": "MD5", "size": 16}},
            {
                "name": "recordField",
                "type": {
                    "type": "record",
                    "name": "Node",
                    "fields": [
                        {"name": "label", "type": "string"},
                        {"name": "children", "type": {"type": "array", "items": "Node"}},
                    ],
                },
            },
        ],
    }
)
"""The schema that Avro's own implementations use for interoperability tests."""
EVENT: dict[str, Any] = {
    "intField": 12,
    "longField": 15_234_324,
    "stringField": "hey",
    "boolField": True,
    "floatField": 1234.0,
    "doubleField": -1234.0,
    "bytesField": b"12312adf",
    "nullField": None,
    "arrayField": [5.0, 0.0, 12.0],
    "mapField": {"a": {"label": "a"}, "bee": {"label": "cee"}},
    "unionField": 12.0,
    "enumField": "C",
    "fixedField": b"1019181716151413",
    "recordField": {"label": "blah", "children": [{"label": "inner", "children": []}]},
}


def without(avsc: str, *names: str) -> str:
    schema = json.loads(avsc)
    return json.dumps({**schema, "fields": [field for field in schema["fields"] if field["name"] not in names]})


def test_interop_schema_is_refused_for_its_union_and_its_recursion_only() -> None:
    problems = Problems()
    parse_avro(INTEROP, place=Place("interop.avsc", "mine"), problems=problems)
    what = [error.what.partition(";")[0] for error in problems.errors]
    assert what == [
        '"unionField" is a union of 3 types, and a column has one type',
        '"children" is recursive: it contains its own record "org.apache.avro.Node", which a table can\'t store',
    ]


def test_interop_messages_land_framed_without_the_fields_that_no_table_has() -> None:
    reader = without(INTEROP, "unionField", "recordField")
    rows, bad = decode(decoder(Schemas(INTEROP), reader=reader), [frame(1, encode(INTEROP, EVENT))])
    wanted = {name: value for name, value in EVENT.items() if name not in ("unionField", "recordField", "nullField")}
    assert bad == {}
    assert rows == {0: {**wanted, "mapField": [("a", {"label": "a"}), ("bee", {"label": "cee"})]}}


JUNK: list[Any] = [None, 1, "x", "null", "Node", [], {}, ["null", "int"], {"type": "array"}, {"type": "enum", "name": "E"}]
JUNK += [{"type": "fixed", "name": "F"}, {"type": "record", "name": "R"}, {"type": "map", "values": "Node"}, True]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Return every position in a schema: its container, and its key or index there."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in places(node[key])]


@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_no_registered_schema_fails_a_batch(hits: list[tuple[int, Any]]) -> None:
    """A registry accepts any schema from producers; an invalid one refuses only its own messages."""
    broken = json.loads(INTEROP)
    for at, instead in hits:
        decoded = places(broken)
        node, key = decoded[at % len(decoded)]
        node[key] = deepcopy(instead)
    reader = without(INTEROP, "unionField", "recordField")
    text = json.dumps(broken)
    event = frame(1, encode(INTEROP, EVENT))
    decode(decoder(Schemas(text), reader=reader), [event])
    decode(ChangesDecoder(schema=schema_of(avro_stream(reader)), registry=Schemas(text), reader=reader), [event, None])


def test_schema_that_is_nested_too_deep_refuses_its_own_messages() -> None:
    text = record(field("id", "string")).replace('"string"', '{"type": "array", "items": ' * 5_000 + '"int"' + "}" * 5_000)
    for how in (decoder(Schemas(text)), ChangesDecoder(schema=schema_of(avro_stream(READER)), registry=Schemas(text))):
        assert decode(how, [frame(1, b"abc")])[1][0].startswith("schema does not fit: of schema 1, ")


def test_interop_messages_land_plain_where_a_table_has_all_fields() -> None:
    reader = without(INTEROP, "unionField", "recordField")
    event = {name: value for name, value in EVENT.items() if name not in ("unionField", "recordField")}
    rows, bad = decode(decoder(None, reader=reader), [encode(reader, event)] * 2)
    assert (bad, rows[1]["longField"], rows[1]["enumField"]) == ({}, 15_234_324, "C")
    flat = without(reader, "mapField", "enumField", "fixedField")
    values: list[bytes | None] = [encode(flat, event)] * 3
    block = decode_stored(decoder(None, reader=flat), values)
    assert block is not None, "a field that is always null has no bytes to be read"
    assert block.columns["bytesField"].to_pylist() == [b"12312adf"] * 3
