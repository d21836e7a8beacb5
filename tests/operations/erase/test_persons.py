"""Resolve an email or an id to a person, with entities of equal values and of similar records."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from headrace.operations.erase.identifiers import identify
from headrace.operations.erase.persons import Entities, Person, find_person
from headrace.spec.model.pipeline import TableName

INDEX = TableName("semantic", "people")
SURE = ("email_normalized", "phone_normalized")
PEOPLE = [
    # entity, source, id, email, phone, matches that are not used
    ("one", "shop", "1", "ann@example.com", None, []),
    ("one", "crm", "2", "ann@example.com", "+15550100001", []),
    ("one", "pay", "3", None, "+15550100001", []),
    ("one", "pay", "4", "anne@example.com", None, []),
    ("two", "shop", "5", "bob@example.com", "+15550100009", ["phone_normalized"]),
    ("two", "pay", "6", "rob@example.com", "+15550100009", ["phone_normalized"]),
]


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = SqlCatalog("people", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    rows = [
        {
            "entity_id": entity,
            "source": source,
            "source_id": number,
            "email": email,
            "email_normalized": email,
            "phone": phone,
            "phone_normalized": phone,
            "unused_matches": unused,
        }
        for entity, source, number, email, phone, unused in PEOPLE
    ]
    kinds = {name: pa.list_(pa.string()) if name == "unused_matches" else pa.string() for name in rows[0]}
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    catalog.create_namespace("semantic")
    catalog.create_table("semantic.people", schema=table.schema).append(table)
    return catalog


def ids(person: Person) -> tuple[list[str], list[str]]:
    return sorted(record["source_id"] for record in person.records), sorted(record["source_id"] for record in person.alike)


def test_find_person_takes_an_entity_of_equal_values_as_one_person(catalog: SqlCatalog) -> None:
    person = find_person(catalog, Entities(INDEX), identify(emails=["Ann@example.com"]))
    assert ids(person) == (["1", "2", "3", "4"], [])


def test_find_person_keeps_records_that_only_look_alike(catalog: SqlCatalog) -> None:
    person = find_person(catalog, Entities(INDEX, matched=SURE), identify(emails=["Ann@example.com"]))
    assert ids(person) == (["1", "2", "3"], ["4"]), "also who shares a value with one that shares a value"
    assert person.identifiers.emails == {"ann@example.com"}
    other = find_person(catalog, Entities(INDEX, matched=SURE), identify(ids=[("pay", "4")]))
    assert ids(other) == (["4"], ["1", "2", "3"]), "named by its id, it is another person"


def test_find_person_ignores_values_that_too_many_records_have(catalog: SqlCatalog) -> None:
    person = find_person(catalog, Entities(INDEX, matched=SURE), identify(emails=["bob@example.com"]))
    assert ids(person) == (["5"], ["6"])
    assert "15550100009" not in person.identifiers.phones, "a phone of another's takes no rows"
    assert person.shared == ("+15550100009",)
