"""Decoding of keys and values for display, with any content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import NotFoundError, UnavailableError
from headrace.printable import printable
from headrace.serving.web.message_text import Writing, read_header, read_part
from headrace.serving.web.topics import cut
from tests.landing.streams import avro_stream, decode
from tests.serving.changes import ENVELOPE, UPDATE, registered, with_schema_in_it

PLAIN = json.dumps({"type": "record", "name": "Event", "fields": [{"name": "uuid", "type": "string"}]})
TOLD = "update of public.customers · changed: email · LSN 3414 · transaction 778 · 2026-02-24 19:59:58.501000Z"


def schemas(schema_id: int) -> str:
    if schema_id != 7:
        raise NotFoundError(f"the registry has no schemas/ids/{schema_id}")
    return json.dumps(ENVELOPE)


def away(schema_id: int) -> str:
    raise UnavailableError("the schema registry does not answer: refused")


def test_envelope_in_avro_and_in_json_read_alike() -> None:
    in_avro = read_part(registered(7, ENVELOPE, UPDATE), Writing(find_schema=schemas))
    in_json = read_part(with_schema_in_it(), Writing())
    assert (in_avro.form, in_avro.schema, in_avro.reason) == ("avro", "schema 7 of the registry", "")
    assert (in_json.form, in_json.schema, in_json.reason) == ("json", "the schema in the message", "")
    assert in_avro.about == in_json.about == TOLD
    for shown in (in_avro, in_json):
        assert '"credit": 1234567.89' in shown.text, "a decimal is its digits"
    assert json.loads(in_avro.text) == json.loads(in_json.text)


def test_plain_avro_is_read_with_the_streams_schema() -> None:
    shown = read_part(b"\x06abc", Writing(avro=PLAIN))
    assert (shown.form, json.loads(shown.text), shown.schema) == ("avro", {"uuid": "abc"}, "the stream's schema")
    assert read_part(b"\x00", Writing(avro=PLAIN)).text == '{\n  "uuid": ""\n}', "a 0 is no registry's prefix here"


def test_framed_avro_is_read_by_its_own_schema_whatever_the_streams_is() -> None:
    framed = registered(7, ENVELOPE, UPDATE)
    for framing in ("auto", "confluent"):
        shown = read_part(framed, Writing(avro=PLAIN, find_schema=schemas, framing=framing))
        assert (shown.form, shown.schema) == ("avro", "schema 7 of the registry")
    assert read_part(framed, Writing(avro=PLAIN, find_schema=schemas, framing="none")).form == "bytes"


def test_message_that_reads_both_ways_is_shown_as_bytes_unless_its_framing_is_known() -> None:
    numbers = {"type": "record", "name": "N", "fields": [{"name": name, "type": "int"} for name in "abcdefghij"]}
    text = json.dumps(numbers)
    raw = b"\x00\x00\x00\x00\x07" + bytes([2] * 5)

    def five(schema_id: int) -> str:
        return json.dumps({**numbers, "fields": numbers["fields"][:5]})

    shown = read_part(raw, Writing(text, five))
    assert (shown.form, shown.reason) == (
        "bytes",
        "it is valid both as plain Avro and as Confluent-framed: set the stream's framing",
    )
    assert read_part(raw, Writing(text, five, "confluent")).schema == "schema 7 of the registry"
    assert read_part(raw, Writing(text, five, "none")).schema == "the stream's schema"


def test_numbers_are_exact() -> None:
    shown = read_part(b'{"a":1.10,"b":123456789012345678901234567890,"c":[1e2]}', Writing())
    assert '"a": 1.10' in shown.text
    assert "123456789012345678901234567890" in shown.text


@pytest.mark.parametrize(
    ("raw", "writing", "form", "reason"),
    [
        (b"\x00\x00\x00\x00\x09x", Writing(find_schema=schemas), "bytes", "the registry has no schemas/ids/9"),
        (b"\x00\x00\x00\x00\x07x", Writing(find_schema=away), "bytes", "does not answer: refused"),
        (b"\x00\x00\x00\x00\x07x", Writing(), "bytes", "no registry is configured"),
        (registered(7, ENVELOPE, UPDATE)[:-3], Writing(find_schema=schemas), "bytes", "ends before its last field"),
        (registered(7, ENVELOPE, UPDATE) + b"!", Writing(find_schema=schemas), "bytes", "1 byte is left"),
        (
            b"not avro",
            Writing(avro=PLAIN),
            "bytes",
            "truncated Avro: the message ends before its last field (read with the stream's schema)",
        ),
        (b'{"uuid":"a"}', Writing(avro=PLAIN), "json", ""),
        (b'{"a":', Writing(), "text", "not JSON"),
        (b"\xff\xfe\x01", Writing(), "bytes", "neither JSON nor text"),
        (b"[" * 100_000, Writing(), "text", "not JSON"),
        (b"customer-7", Writing(), "text", ""),
        (b"\x06abc", Writing(avro='{"type": "nothing"}'), "bytes", "UnknownType"),
        (None, Writing(), "null", ""),
        (b"", Writing(), "empty", ""),
    ],
)
def test_undecodable_message_is_shown_with_its_reason(raw: bytes, writing: Writing, form: str, reason: str) -> None:
    shown = read_part(raw, writing)
    assert shown.form == form
    assert reason in shown.reason
    assert bool(reason) == bool(shown.reason)
    assert shown.raw == (raw if form == "bytes" else b"")


@pytest.mark.parametrize("raw", [b"not avro", b"\x06ab", b"\x06abc!", b"\x04\xff\xfe", b"Obj\x01", b"\xc3\x01"])
def test_reason_is_that_of_the_quarantine(raw: bytes) -> None:
    _, bad = decode(avro_stream(PLAIN), [raw])
    assert read_part(raw, Writing(avro=PLAIN)).reason == f"{bad[0]} (read with the stream's schema)"


@given(st.binary(max_size=200), st.booleans())
def test_no_message_is_an_error(raw: bytes, has_prefix: bool) -> None:
    whole = b"\x00\x00\x00\x00\x07" + raw if has_prefix else raw
    shown = read_part(whole, Writing(avro=PLAIN, find_schema=schemas))
    assert shown.form == "empty" or shown.size == len(whole)
    if shown.form in ("json", "avro"):
        json.loads(shown.text)


def test_secrets_are_hidden() -> None:
    value = {"properties": {"database.password": "s3cret", "name": "x", "api_key": "s3cret", "sasl.jaas.config": "s3cret"}}
    shown = read_part(json.dumps([value, {"password": None}]).encode(), Writing())
    assert "s3cret" not in shown.text
    assert '"name": "x"' in shown.text
    assert '"password": null' in shown.text
    assert read_header("x-auth-token", b"s3cret").text == "(hidden)"
    assert read_header("trace", b"abc").text == "abc"


def test_control_characters_are_removed() -> None:
    hostile = "\x1b[2J\x9b31m\u202etxt.exe\x7f"
    for raw in (hostile.encode(), json.dumps({hostile: hostile}, ensure_ascii=False).encode()):
        shown = read_part(raw, Writing())
        assert all(character.isprintable() or character in "\n\t" for character in shown.text)
    assert json.loads(shown.text) == {hostile: hostile}, "escaped as JSON escapes"
    assert printable("tag \U000e0001") == "tag \\udb40\\udc01"


def test_long_values_are_cut_with_a_note() -> None:
    shown = read_part(json.dumps({"text": "x" * 1_000_000}).encode(), Writing())
    text, note = cut(shown, 2_000)
    assert len(text) == 2_000
    assert note == "truncated, 1,000,012 bytes in total"
    assert cut(read_part(b"short", Writing()), 2_000) == ("short", "")
    assert cut(read_part(b"\xff" * 10_000, Writing()), 100_000)[1] == "truncated, 10,000 bytes in total"
