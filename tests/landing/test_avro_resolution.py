"""Avro's schema resolution: messages written with one schema and read with another."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.landing.decode.avro import AvroDecoder
from headrace.landing.decode.resolution import MismatchError, resolve
from tests.landing.streams import avro_stream, rows_of, schema_of

UTC = timezone.utc
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(*fields: dict[str, Any], name: str = "Event") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **more}


def encode(schema: dict[str, Any], event: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
    return out.getvalue()


def read(
    writer: dict[str, Any], reader: dict[str, Any], *events: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Return the rows and the reasons. Block decoding must equal single decoding."""
    table = schema_of(avro_stream(json.dumps(reader)))
    resolution = resolve(json.dumps(writer), json.dumps(reader))
    decoder = AvroDecoder("", schema=table, resolution=resolution)
    values: list[bytes | None] = [encode(writer, event) for event in events]
    decoded = decoder.decode(values)
    assert sorted([*decoded.rows, *decoded.bad]) == list(range(len(values)))
    single = decoder._decode_each(values)
    assert (rows_of(decoded), decoded.bad) == (rows_of(single), single.bad)
    for name, column in decoded.columns.items():
        assert column.type == table.field(name).type
        column.validate(full=True)
    return rows_of(decoded), dict(decoded.bad)


def read_one(writer: Any, reader: Any, value: Any) -> Any:
    """Return a field's resolved value, alone and inside an array, a map and a record."""
    (row,), bad = read(record(field("x", writer)), record(field("x", reader)), {"x": value})
    assert bad == {}
    for wrapper, wrapped in (("items", [value]), ("values", {"k": value})):
        kind = "array" if wrapper == "items" else "map"
        (outer,), bad = read(
            record(field("x", {"type": kind, wrapper: writer})),
            record(field("x", {"type": kind, wrapper: reader})),
            {"x": wrapped},
        )
        assert (outer["x"], bad) == ([row["x"]] if kind == "array" else [("k", row["x"])], {})
    (outer,), bad = read(
        record(field("in", record(field("x", writer), name="In"))),
        record(field("in", record(field("x", reader), name="Within"))),
        {"in": {"x": value}},
    )
    assert (outer["in"], bad) == ({"x": row["x"]}, {})
    return row["x"]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "wanted"),
    [
        ("int", "long", -5, -5),
        ("int", "float", 5, 5.0),
        ("int", "double", 5, 5.0),
        ("long", "float", 2**40, float(2**40)),
        ("long", "double", 2**53 + 1, float(2**53)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("int", ["null", "long"], 7, 7),
        (["null", "int"], ["null", "double"], 7, 7.0),
        (["null", "int"], ["int", "null"], None, None),
        (["string", "null"], ["null", "string"], "a", "a"),
        (["null", "int"], "long", 3, 3),
        (["null", "int", "long"], ["null", "long"], 2**40, 2**40),
        (["int", "string"], "string", "a", "a"),
        (["string", "bytes", "null"], ["null", "string"], b"a", "a"),
        (enum("A", "B", "C"), enum("A", "X", default="X"), "B", "X"),
        (enum("A", "B"), enum("B", "A"), "A", "A"),
        (MILLIS, MICROS, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        (MICROS, MILLIS, datetime(2026, 1, 1, 0, 0, 0, 5, UTC), datetime(2026, 1, 1, 0, 0, 0, 5, UTC)),
        ("long", MILLIS, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("int", MILLIS, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (MILLIS, "long", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000),
        ({"type": "int", "logicalType": "date"}, "long", 3, 3),
        ({"type": "long", "logicalType": "time-micros"}, "long", 3, 3),
        ("long", {"type": "long", "logicalType": "time-micros"}, 3, 3),
        (decimal(5, 2), decimal(12, 2), Decimal("-1.05"), Decimal("-1.05")),
        ("bytes", decimal(5, 2), b"\x69", Decimal("1.05")),
        (decimal(5, 2), "bytes", Decimal("1.05"), b"\x69"),
    ],
)
def test_value_is_read_as_the_readers_type(writer: Any, reader: Any, value: Any, wanted: Any) -> None:
    decoded = read_one(writer, reader, value)
    assert (decoded, type(decoded)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("double", "float"),
        ("double", "long"),
        ("boolean", "int"),
        ("string", "int"),
        ("int", "string"),
        (enum("A"), "string"),
        ("string", {"type": "array", "items": "string"}),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}),
        (["boolean", "string"], "long"),
        (decimal(5, 2), decimal(5, 3)),
        ({"type": "int", "logicalType": "date"}, MILLIS),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, MICROS),
        (record(field("a", "int"), name="R"), {"type": "map", "values": "int"}),
    ],
)
def test_types_that_do_not_resolve_are_named_with_their_field(writer: Any, reader: Any) -> None:
    with pytest.raises(MismatchError, match=r"^`in\.x` is .*, and the stream's schema has "):
        resolve(
            json.dumps(record(field("in", record(field("x", writer), name="In")))),
            json.dumps(record(field("in", record(field("x", reader), name="In")))),
        )


def test_null_or_a_symbol_that_the_reader_lacks_is_refused_alone() -> None:
    rows, bad = read(record(field("x", ["null", "int"])), record(field("x", "int")), {"x": 1}, {"x": None}, {"x": 3})
    assert ([row["x"] for row in rows], list(bad)) == ([1, 3], [1])
    assert bad[1] == "no place for a value: `x` is null, and the stream's schema allows none"
    inner = record(field("y", {"type": "array", "items": ["null", "int"]}), name="In")
    wanted = record(field("y", {"type": "array", "items": "int"}), name="In")
    rows, bad = read(
        record(field("x", ["null", inner])), record(field("x", ["null", wanted])), {"x": None}, {"x": {"y": [1, None]}}
    )
    assert (rows, bad) == ([{"x": None}], {1: "no place for a value: `x.y` is null, and the stream's schema allows none"})
    rows, bad = read(record(field("x", enum("A", "B"))), record(field("x", enum("A"))), {"x": "B"}, {"x": "A"})
    assert ([row["x"] for row in rows], list(bad)) == (["A"], [0])
    assert "B not found in reader symbol list Colour, " in bad[0]
    rows, bad = read(record(field("x", ["int", "boolean"])), record(field("x", "long")), {"x": True}, {"x": 4})
    assert ([row["x"] for row in rows], list(bad)) == ([4], [0])


def test_null_without_a_place_in_a_damaged_message_is_refused_too() -> None:
    writer, reader = record(field("x", ["null", "int"]), field("s", "string")), record(field("x", "int"), field("s", "string"))
    resolution = resolve(json.dumps(writer), json.dumps(reader))
    decoder = AvroDecoder("", schema=schema_of(avro_stream(json.dumps(reader))), resolution=resolution)
    whole = encode(writer, {"x": None, "s": "abc"})
    assert sorted(decoder.decode([whole[:-1], whole, whole + b"x"]).bad) == [0, 1, 2]


NESTED = record(field("b", "bytes", default="\u00ff"), field("n", ["null", "int"], default=None), name="N")


@pytest.mark.parametrize(
    ("kind", "default", "wanted"),
    [
        ("int", -3, -3),
        ("double", 2, 2.0),
        ("boolean", True, True),
        ("string", "é", "é"),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        (["null", "int"], None, None),
        (["int", "null"], 4, 4),
        (enum("A", "B"), "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00fea", b"\xfea"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        (NESTED, {}, {"b": b"\xff", "n": None}),
        (NESTED, {"b": "a", "n": 5}, {"b": b"a", "n": 5}),
        (decimal(5, 2), "\u0069", Decimal("1.05")),
        (MILLIS, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ({"type": "string", "logicalType": "uuid"}, "u", "u"),
    ],
)
def test_field_that_only_the_reader_has_is_its_default(kind: Any, default: Any, wanted: Any) -> None:
    added = field("new", kind, default=default)
    rows, bad = read(record(field("a", "int")), record(added, field("a", "int")), {"a": 1}, {"a": 2})
    assert (rows, bad) == ([{"a": 1, "new": wanted}, {"a": 2, "new": wanted}], {})
    old, new = record(field("a", "int"), name="In"), record(field("a", "int"), added, name="In")
    rows, bad = read(
        record(field("in", ["null", old])), record(field("in", ["null", new])), {"in": {"a": 1}}, {"in": None}, {"in": {"a": 2}}
    )
    assert [row["in"] for row in rows] == [{"a": 1, "new": wanted}, None, {"a": 2, "new": wanted}]
    rows, bad = read(
        record(field("in", {"type": "array", "items": old})),
        record(field("in", {"type": "array", "items": new})),
        {"in": [{"a": 1}, {"a": 2}]},
    )
    assert rows[0]["in"] == [{"a": 1, "new": wanted}, {"a": 2, "new": wanted}]


def test_field_without_a_default_has_to_be_there() -> None:
    with pytest.raises(MismatchError, match=r"^`new` is not in it, and the stream's schema has no default for it$"):
        resolve(json.dumps(record(field("a", "int"))), json.dumps(record(field("a", "int"), field("new", "int"))))


def test_fields_are_found_by_their_names_and_aliases() -> None:
    writer = record(field("old", "int"), field("gone", {"type": "map", "values": "int"}), field("b", "string"), name="V1")
    reader = record(field("b", "string"), field("now", "long", aliases=["older", "old"]), name="V2")
    rows, bad = read(writer, reader, {"old": 1, "gone": {"k": 1}, "b": "x"})
    assert (rows, bad) == ([{"now": 1, "b": "x"}], {})
    assert resolve(json.dumps(writer), json.dumps(reader)).ignored == ("gone",)


def test_name_comes_before_an_alias() -> None:
    reader = record(field("now", "int", aliases=["old"]))
    rows, _ = read(record(field("old", "int"), field("now", "int")), reader, {"old": 1, "now": 2})
    assert rows == [{"now": 2}]


def test_aliases_inside_of_records_and_of_a_type_that_is_used_twice() -> None:
    point = record(field("lon", "int"), field("lat", "int"), name="Point")
    writer = record(field("from", point), field("to", ["null", "Point"]))
    place = record(field("y", "long", aliases=["lat"]), field("x", "double", aliases=["lon"]), name="Place")
    rows, bad = read(
        writer,
        record(field("to", ["null", place]), field("from", "Place")),
        {"from": {"lon": 1, "lat": 2}, "to": {"lon": 3, "lat": 4}},
        {"from": {"lon": 1, "lat": 2}, "to": None},
    )
    assert bad == {}
    assert rows == [{"from": {"y": 2, "x": 1.0}, "to": {"y": 4, "x": 3.0}}, {"from": {"y": 2, "x": 1.0}, "to": None}]


def test_recursive_or_null_field_that_the_reader_leaves_out_is_skipped() -> None:
    node = record(field("label", "string"), field("children", {"type": "array", "items": "Node"}), name="Node")
    writer = record(field("tree", node), field("none", "null"), field("a", "int"))
    tree = {"label": "x", "children": [{"label": "y", "children": []}]}
    rows, bad = read(writer, record(field("a", "long")), {"tree": tree, "none": None, "a": 1})
    assert (rows, bad) == ([{"a": 1}], {})


@pytest.mark.parametrize(
    "text", ["", "{", '"string"', '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "no"}]}', "[]"]
)
def test_registered_text_that_is_no_record_is_a_mismatch(text: str) -> None:
    with pytest.raises(MismatchError):
        resolve(text, json.dumps(record(field("a", "int"))))


def test_evolved_schemas_are_decoded_in_blocks() -> None:
    """Otherwise every message of an older or newer schema would decode much slower, and no other test would notice."""
    inner = record(field("x", "int"), field("gone", "string"), name="In")
    writer = record(field("in", ["null", inner]), field("old", "int"), field("b", ["string", "null"]), field("t", MILLIS))
    wanted = record(field("y", "double", aliases=["x"]), field("z", "string", default="z"), name="In")
    reader = record(
        field("b", ["null", "string"]),
        field("in", ["null", wanted]),
        field("now", "long", aliases=["old"]),
        field("t", MICROS),
        field("new", "int", default=1),
    )
    resolution = resolve(json.dumps(writer), json.dumps(reader))
    decoder = AvroDecoder("", schema=schema_of(avro_stream(json.dumps(reader))), resolution=resolution)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    value = encode(writer, {"in": {"x": 1, "gone": "g"}, "old": 2, "b": None, "t": moment})
    columns = decoder._decode_values([value])
    assert columns is not None
    row = {name: column[0].as_py() for name, column in columns.items()}
    assert row == {"b": None, "in": {"y": 1.0, "z": "z"}, "now": 2, "t": moment, "new": 1}


PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
values_of = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.text(max_size=3).map(lambda text: text.encode("utf-8", "ignore")),
}


@given(st.data())
def test_fastavro_resolves_alike(data: st.DataObject) -> None:
    """For random pairs of schemas, fastavro's own resolution gives the expected values."""
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True))
    kinds = {name: data.draw(st.sampled_from(PRIMITIVES)) for name in names}
    nullable = {name: data.draw(st.booleans()) for name in names}
    writer = record(*(field(name, ["null", kinds[name]] if nullable[name] else kinds[name]) for name in names))
    wanted = data.draw(st.permutations(names))
    fields = []
    for name in wanted:
        kind = data.draw(st.sampled_from(PRIMITIVES))
        alias = data.draw(st.booleans())
        null = nullable[name] or data.draw(st.booleans())
        more = {"aliases": [name]} if alias else {}
        fields.append(field(f"{name}{name}" if alias else name, [kind, "null"] if null else kind, **more))
    reader = record(*fields, field("added", "int", default=7))
    event = {name: None if nullable[name] and data.draw(st.booleans()) else data.draw(values_of[kinds[name]]) for name in names}
    stored = encode(writer, event)
    read_whole: Any = partial(
        fastavro.schemaless_reader,
        writer_schema=fastavro.parse_schema(json.loads(json.dumps(writer))),
        reader_schema=fastavro.parse_schema(json.loads(json.dumps(reader))),
    )
    try:
        resolve(json.dumps(writer), json.dumps(reader))
    except MismatchError:
        # If no message can be resolved, fastavro refuses at least one without a null.
        whole = encode(writer, {name: data.draw(values_of[kinds[name]]) for name in names})
        with pytest.raises(Exception, match=r"(?i)mismatch"):
            read_whole(io.BytesIO(whole))
        return
    expected = read_whole(io.BytesIO(stored))
    rows, bad = read(writer, reader, event)
    assert bad == {}
    single = {field["name"] for field in fields if "float" in field["type"]}
    assert rows[0].keys() == expected.keys()
    for name, value in expected.items():
        if name in single and value is not None:
            value = pa.scalar(value, pa.float32()).as_py()
        assert rows[0][name] == value, name


NOTHING = {"type": "fixed", "name": "Nothing", "size": 0}


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "null"},
        NOTHING,
        record(name="Empty"),
        record(field("a", "null"), field("b", NOTHING), name="Empty"),
    ],
)
@pytest.mark.parametrize("inside", ["field", "union", "record", "map"])
def test_array_whose_items_take_no_bytes_is_refused(items: Any, inside: str) -> None:
    """A message of eight bytes could block a worker for years, and with it every stream."""
    array = {"type": "array", "items": items}
    kinds = {"field": array, "union": ["null", array], "record": record(field("in", array), name="In")}
    kind = kinds.get(inside, {"type": "map", "values": array})
    writer = record(field("x", "int"), field("list", kind))
    name = "in" if inside == "record" else "list"
    with pytest.raises(MismatchError, match=f"^`{name}` is an array whose items take no bytes"):
        resolve(json.dumps(writer), json.dumps(record(field("x", "int"))))


def test_array_of_named_or_optional_items_is_read() -> None:
    node = record(field("next", ["null", "Node"]), name="Node")
    writer = record(
        field("x", "int"), field("a", {"type": "array", "items": ["null"]}), field("b", {"type": "array", "items": node})
    )
    assert read(writer, record(field("x", "int")), {"x": 5, "a": [None], "b": [{"next": None}]})[0] == [{"x": 5}]
