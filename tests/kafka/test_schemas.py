"""Requests of the registry client, and how it handles responses."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from headrace.errors import NotFoundError, UnavailableError
from headrace.kafka.schemas import Registry
from headrace.spec.loading.avro import parse_avro
from headrace.spec.problems import Place, Problems
from tests.kafka.played_registry import play_registry

AVRO = '{"type": "string"}'


def test_registry_requests_a_schema_once() -> None:
    with play_registry({"/schemas/ids/7": {"schema": AVRO}}) as played:
        registry = Registry(f"{played.url}/")
        assert [registry.schema(7) for _ in range(3)] == [AVRO] * 3
        for _ in range(2):
            with pytest.raises(NotFoundError, match="the registry has no schema 8"):
                registry.schema(8)
    assert [path for path, _ in played.asked] == ["/schemas/ids/7", "/schemas/ids/8"]


def test_registry_raises_on_a_schema_that_is_not_avro() -> None:
    answers = {"/schemas/ids/7": {"schema": "{}", "schemaType": "JSON"}}
    with play_registry(answers) as played, pytest.raises(NotFoundError, match="schema 7 is JSON, not AVRO"):
        Registry(played.url).schema(7)


def test_registry_inlines_referenced_schemas() -> None:
    """Named types may be schemas of their own subjects, which may reference further schemas."""
    country = {"type": "enum", "name": "Country", "symbols": ["DE", "AT"]}
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "geo",
        "fields": [{"name": "city", "type": "string"}, {"name": "country", "type": "Country"}],
    }
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "to", "type": "geo.Address"}, {"name": "from", "type": ["null", "geo.Address"]}],
    }
    to_country = [{"name": "Country", "subject": "country", "version": 1}]
    answers = {
        "/schemas/ids/7": {
            "schema": json.dumps(order),
            "references": [{"name": "geo.Address", "subject": "geo/address", "version": 3}],
        },
        "/subjects/geo%2Faddress/versions/3": {"id": 5, "schema": json.dumps(address), "references": to_country},
        "/subjects/country/versions/1": {"id": 4, "schema": json.dumps(country)},
    }
    with play_registry(answers) as played:
        text = Registry(played.url).schema(7)
    schema = fastavro.parse_schema(json.loads(text))
    event = {"to": {"city": "Wien", "country": "AT"}, "from": {"city": "Bonn", "country": "DE"}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, event)
    assert fastavro.schemaless_reader(io.BytesIO(out.getvalue()), schema, None) == event
    problems = Problems()
    columns = parse_avro(text, place=Place("", ""), problems=problems)
    assert ([str(column.type) for column in columns], problems.errors) == (
        ["struct<city: string, country: string>"] * 2,
        [],
    )


def test_registry_raises_on_a_missing_reference() -> None:
    answers = {"/schemas/ids/7": {"schema": AVRO, "references": [{"name": "A", "subject": "a", "version": 1}]}}
    with play_registry(answers) as played, pytest.raises(NotFoundError, match="the registry has no subjects/a/versions/1"):
        Registry(played.url).schema(7)


def test_registry_returns_versions_of_a_subject() -> None:
    place = "/subjects/shop.charges-value/versions"
    answers: dict[str, object] = {place: [1, 2]}
    answers |= {f"{place}/{number}": {"version": number, "id": number + 10, "schema": AVRO} for number in (1, 2)}
    with play_registry(answers) as played:
        registry = Registry(played.url)
        assert [(version.version, version.id) for version in registry.versions("shop.charges-value")] == [(1, 11), (2, 12)]
        registry.versions("shop.charges-value")
        assert len(played.asked) == 4, "a version is asked for once"
        assert registry.versions("other-value") == ()


def test_registry_sends_the_password_only_in_a_header() -> None:
    with play_registry({"/schemas/ids/7": {"schema": AVRO}}) as played:
        registry = Registry(played.url.replace("://", "://me:s3cret@"))
        assert registry.schema(7) == AVRO
        assert played.asked[0][1]["Authorization"] == "Basic bWU6czNjcmV0"
    with pytest.raises(UnavailableError) as refused:
        registry.schema(8)
    assert "s3cret" not in str(refused.value)


def test_registry_reports_a_wrong_address_as_an_outage() -> None:
    answers = {"/schemas/ids/7": ["nonsense"]}
    with play_registry(answers) as played, pytest.raises(UnavailableError, match="it returned no schema for id 7"):
        Registry(played.url).schema(7)
    with pytest.raises(UnavailableError, match="does not answer"):
        Registry(played.url).schema(7)


@pytest.mark.parametrize(
    ("references", "answer"),
    [
        ([{"name": "geo.Address"}], {}),
        (["geo.Address"], {}),
        ([{"name": "geo.Address", "subject": "address", "version": 1}], {"message": "busy"}),
        ([{"name": "geo.Address", "subject": "address", "version": 1}], ["busy"]),
    ],
)
def test_registry_reports_invalid_references_as_an_outage(references: object, answer: object) -> None:
    answers = {"/schemas/ids/7": {"schema": AVRO, "references": references}, "/subjects/address/versions/1": answer}
    with play_registry(answers) as played, pytest.raises(UnavailableError, match="it returned invalid references for schema 7"):
        Registry(played.url).schema(7)
