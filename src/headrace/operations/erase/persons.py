"""Resolve an email or id to all identifiers of the person, with the pipeline's table of entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from headrace.errors import ErasureError
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.rows.filters import column_is
from headrace.operations.erase.identifiers import Identifiers, identify
from headrace.spec.loading.people import ENTITY_COLUMNS
from headrace.spec.model.matching import UNUSED
from headrace.spec.model.pipeline import TableName

_AT_ONCE = 500

Record = Mapping[str, Any]


def _plain(email: str) -> str | None:
    return email.strip().lower()


@dataclass(frozen=True)
class Entities:
    """The table that groups records by person: its columns with emails and phones, and how it normalises an email.

    If it also groups similar records (fuzzy), `matched` are the columns whose equal values are a certain match.
    """

    table: TableName
    emails: tuple[str, ...] = ("email", "email_normalized")
    phones: tuple[str, ...] = ("phone", "phone_normalized")
    normalise: Callable[[str], str | None] = _plain
    matched: tuple[str, ...] = ()

    def spellings(self, asked: Identifiers) -> set[str]:
        """Return the given emails as written and as the table normalises them."""
        written = {*asked.emails, *(text for text in asked.written if "@" in text)}
        return {*written, *filter(None, map(self.normalise, written))}


@dataclass(frozen=True)
class Person:
    """One person: the identifiers, the pipeline's records, and values that the person shares with others.

    `shared` values are not identifiers, because they would erase rows of others. `alike` are records that are only similar to
    the person's records: they are not certainly this person's, so they stay.
    """

    identifiers: Identifiers
    records: tuple[Record, ...] = ()
    shared: tuple[str, ...] = ()
    alike: tuple[Record, ...] = ()


def find_person(catalog: Catalog, entities: Entities | None, asked: Identifiers) -> Person:
    """Return the person with one of these identifiers. Without a table of entities, they are the person's only identifiers.

    Raise an ErasureError if the identifiers belong to several persons.
    """
    table = load_table(catalog, entities.table) if entities else None
    if entities is None or table is None or table.current_snapshot() is None:
        return Person(asked)
    index = _Index(table, entities)
    entity_ids = index.entities_of(replace(asked, emails=frozenset(), written=frozenset()))
    if len(entity_ids) != 1:  # ids alone may be unique where an email is shared
        entity_ids = index.entities_of(asked)
    if len(entity_ids) > 1:
        raise ErasureError(
            f"the email or id belongs to {len(entity_ids)} persons",
            where=str(entities.table),
            next_step="Choose one of them by the id of a record: --id SOURCE:ID",
        )
    every = index.scan([column_is("entity_id", entity) for entity in entity_ids])
    records = _certain_records(every, asked, entities) if entities.matched else every
    alike = [record for record in every if record not in records]
    identifiers = asked | identify(ids=((str(record["source"]), record["source_id"]) for record in records))
    shared: list[str] = []
    for name in index.contact_columns:
        values = {str(record[name]) for record in records if record[name]}
        given = asked.written | asked.emails | {f"+{phone}" for phone in asked.phones}
        others = index.of_others(name, values | given, entity_ids) | (values & {str(record[name]) for record in alike})
        shared += sorted(others)
        own = values - others
        identifiers |= identify(emails=own) if name in entities.emails else identify(phones=own)
    identifiers = identifiers.without(shared)
    return Person(identifiers, tuple(records), tuple(dict.fromkeys(shared)), tuple(alike))


def _certain_records(records: Sequence[Record], asked: Identifiers, entities: Entities) -> list[Record]:
    """Return the records with the identifiers, and all records linked to them by equal values, directly or indirectly."""
    emails = {email.lower() for email in entities.spellings(asked)}

    def is_named(record: Record) -> bool:
        by_id = record["source_id"] in asked.ids.get(str(record["source"]), ())
        return by_id or any(str(record.get(name)).lower() in emails for name in entities.emails)

    certain, others = [record for record in records if is_named(record)], [record for record in records if not is_named(record)]
    while linked := [record for record in others if any(_share_a_value(record, known, entities.matched) for known in certain)]:
        certain += linked
        others = [record for record in others if record not in linked]
    return certain


def _share_a_value(left: Record, right: Record, matched: Sequence[str]) -> bool:
    """Return whether two records have an equal value, not counting values that too many records have."""
    return any(left[name] and left[name] == right[name] and name not in (left[UNUSED] or ()) for name in matched)


@dataclass(frozen=True)
class _Index:
    table: Table
    entities: Entities

    @property
    def contact_columns(self) -> tuple[str, ...]:
        have = {field.name for field in self.table.schema().fields}
        return tuple(name for name in (*self.entities.emails, *self.entities.phones) if name in have)

    def entities_of(self, asked: Identifiers) -> set[str]:
        """Return the entities with any of the emails or ids. Phones are ignored, because they change owners."""
        emails = sorted(self.entities.spellings(asked))
        wanted = [column_is(name, email) for name in self.contact_columns if name in self.entities.emails for email in emails]
        wanted += [
            And(column_is("source", kind), column_is("source_id", value))
            for kind, ids in asked.ids.items()
            for value in sorted(ids)
        ]
        return {str(record["entity_id"]) for record in self.scan(wanted)}

    def of_others(self, name: str, values: set[str], entity_ids: set[str]) -> set[str]:
        """Return the values that a record of another entity has too."""
        ordered = sorted(values)
        parts = [ordered[at : at + _AT_ONCE] for at in range(0, len(ordered), _AT_ONCE)]
        records = self.scan([In(term=Reference(name), values={literal(value) for value in part}) for part in parts])
        return {str(record[name]) for record in records if str(record["entity_id"]) not in entity_ids}

    def scan(self, wanted: Sequence[BooleanExpression]) -> list[Record]:
        matched = (*self.entities.matched, UNUSED) if self.entities.matched else ()
        fields = tuple(dict.fromkeys((*ENTITY_COLUMNS, *self.contact_columns, *matched)))
        rows: Iterable[Record] = (
            row
            for condition in wanted
            for row in self.table.scan(row_filter=condition, selected_fields=fields).to_arrow().to_pylist()
        )
        return list({str(row): row for row in rows}.values())
