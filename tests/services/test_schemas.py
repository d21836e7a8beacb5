"""What a registry is asked, and what becomes of its answers."""

from __future__ import annotations

import pytest

from headrace.errors import NotFoundError, UnavailableError
from headrace.services.schemas import Registry
from tests.services.played_registry import play_registry

AVRO = '{"type": "string"}'


def test_a_schema_is_asked_for_once() -> None:
    with play_registry({"/schemas/ids/7": {"schema": AVRO}}) as played:
        registry = Registry(f"{played.url}/")
        assert [registry.schema(7) for _ in range(3)] == [AVRO] * 3
        for _ in range(2):
            with pytest.raises(NotFoundError, match="the registry has no schema 8"):
                registry.schema(8)
    assert [path for path, _ in played.asked] == ["/schemas/ids/7", "/schemas/ids/8"]


def test_a_schema_that_is_not_avro_is_none() -> None:
    answers = {"/schemas/ids/7": {"schema": "{}", "schemaType": "JSON"}}
    with play_registry(answers) as played, pytest.raises(NotFoundError, match="schema 7 is JSON, not AVRO"):
        Registry(played.url).schema(7)


def test_versions_of_a_subject() -> None:
    place = "/subjects/shop.charges-value/versions"
    answers: dict[str, object] = {place: [1, 2]}
    answers |= {f"{place}/{number}": {"version": number, "id": number + 10, "schema": AVRO} for number in (1, 2)}
    with play_registry(answers) as played:
        registry = Registry(played.url)
        assert [(each.version, each.id) for each in registry.versions("shop.charges-value")] == [(1, 11), (2, 12)]
        registry.versions("shop.charges-value")
        assert len(played.asked) == 4, "a version is asked for once"
        assert registry.versions("other-value") == ()


def test_a_password_goes_to_a_header_and_is_not_told() -> None:
    with play_registry({"/schemas/ids/7": {"schema": AVRO}}) as played:
        registry = Registry(played.url.replace("://", "://me:s3cret@"))
        assert registry.schema(7) == AVRO
        assert played.asked[0][1]["Authorization"] == "Basic bWU6czNjcmV0"
    with pytest.raises(UnavailableError) as refused:
        registry.schema(8)
    assert "s3cret" not in str(refused.value)


def test_a_wrong_address_is_not_a_missing_schema() -> None:
    answers = {"/schemas/ids/7": ["nonsense"]}
    with play_registry(answers) as played, pytest.raises(UnavailableError, match="it gave no schema for 7"):
        Registry(played.url).schema(7)
    with pytest.raises(UnavailableError, match="does not answer"):
        Registry(played.url).schema(7)
