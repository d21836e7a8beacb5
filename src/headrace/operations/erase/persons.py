"""Who is meant: from one email or id to all that tells the same person, as the pipeline's entities say it."""

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
    """The table that says which records are one person's: its columns with emails and phones, and how it writes an email.

    Where it also joins records that only look alike, `matched` are the columns whose equal values make records surely one's.
    """

    table: TableName
    emails: tuple[str, ...] = ("email", "email_normalized")
    phones: tuple[str, ...] = ("phone", "phone_normalized")
    normalise: Callable[[str], str | None] = _plain
    matched: tuple[str, ...] = ()

    def spellings(self, asked: Identifiers) -> set[str]:
        """Return the emails that are asked for as they were written, and as the table writes them."""
        written = {*asked.emails, *(each for each in asked.written if "@" in each)}
        return {*written, *filter(None, map(self.normalise, written))}


@dataclass(frozen=True)
class Person:
    """One person: all that tells them, the records that the pipeline knows of them, and values that others have as well.

    `shared` are not among the identifiers: by them another's rows would go. `alike` are records of the same entity that only
    look alike: nobody knows that they are this person's, so they stay.
    """

    identifiers: Identifiers
    records: tuple[Record, ...] = ()
    shared: tuple[str, ...] = ()
    alike: tuple[Record, ...] = ()


def find_person(catalog: Catalog, entities: Entities | None, asked: Identifiers) -> Person:
    """Return the person that one of these identifiers tells: without a table of entities, by these alone.

    An ErasureError where the identifiers are those of several persons, because then nobody could say whose rows go.
    """
    table = load_table(catalog, entities.table) if entities else None
    if entities is None or table is None or table.current_snapshot() is None:
        return Person(asked)
    index = _Index(table, entities)
    found = index.entities_of(replace(asked, emails=frozenset(), written=frozenset()))
    if len(found) != 1:  # an id tells one person even where an email is shared
        found = index.entities_of(asked)
    if len(found) > 1:
        raise ErasureError(
            f"the same email or id belongs to {len(found)} persons",
            where=str(entities.table),
            next_step="Name one of them by the id of a record: --id SOURCE:ID",
        )
    every = index.scan([column_is("entity_id", each) for each in found])
    records = _surely_theirs(every, asked, entities) if entities.matched else every
    alike = [each for each in every if each not in records]
    mine = asked | identify(ids=((str(each["source"]), each["source_id"]) for each in records))
    shared: list[str] = []
    for name in index.told:
        values = {str(each[name]) for each in records if each[name]}
        named = asked.written | asked.emails | {f"+{each}" for each in asked.phones}
        others = index.of_others(name, values | named, found) | (values & {str(each[name]) for each in alike})
        shared += sorted(others)
        own = values - others
        mine |= identify(emails=own) if name in entities.emails else identify(phones=own)
    mine = mine.without(shared)
    return Person(mine, tuple(records), tuple(dict.fromkeys(shared)), tuple(alike))


def _surely_theirs(records: Sequence[Record], asked: Identifiers, entities: Entities) -> list[Record]:
    """Return the records that the identifiers name, and those that share a value with one of them, however far."""
    emails = {each.lower() for each in entities.spellings(asked)}

    def is_named(record: Record) -> bool:
        by_id = record["source_id"] in asked.ids.get(str(record["source"]), ())
        return by_id or any(str(record.get(name)).lower() in emails for name in entities.emails)

    theirs, others = [each for each in records if is_named(each)], [each for each in records if not is_named(each)]
    while reached := [each for each in others if any(_share_a_value(each, known, entities.matched) for known in theirs)]:
        theirs += reached
        others = [each for each in others if each not in reached]
    return theirs


def _share_a_value(one: Record, other: Record, matched: Sequence[str]) -> bool:
    """Return whether two records are joined by a value; one that too many records have joins nobody."""
    return any(one[name] and one[name] == other[name] and name not in (one[UNUSED] or ()) for name in matched)


@dataclass(frozen=True)
class _Index:
    table: Table
    entities: Entities

    @property
    def told(self) -> tuple[str, ...]:
        have = {field.name for field in self.table.schema().fields}
        return tuple(name for name in (*self.entities.emails, *self.entities.phones) if name in have)

    def entities_of(self, asked: Identifiers) -> set[str]:
        """Return the entities that any of the identifiers names; by emails and ids, because phones are passed on."""
        emails = sorted(self.entities.spellings(asked))
        wanted = [column_is(name, each) for name in self.told if name in self.entities.emails for each in emails]
        wanted += [
            And(column_is("source", kind), column_is("source_id", each))
            for kind, ids in asked.ids.items()
            for each in sorted(ids)
        ]
        return {str(each["entity_id"]) for each in self.scan(wanted)}

    def of_others(self, name: str, values: set[str], mine: set[str]) -> set[str]:
        """Return those of the values that a record of another entity has too."""
        ordered = sorted(values)
        parts = [ordered[at : at + _AT_ONCE] for at in range(0, len(ordered), _AT_ONCE)]
        found = self.scan([In(term=Reference(name), values={literal(each) for each in part}) for part in parts])
        return {str(each[name]) for each in found if str(each["entity_id"]) not in mine}

    def scan(self, wanted: Sequence[BooleanExpression]) -> list[Record]:
        matched = (*self.entities.matched, UNUSED) if self.entities.matched else ()
        fields = tuple(dict.fromkeys((*ENTITY_COLUMNS, *self.told, *matched)))
        rows: Iterable[Record] = (
            row for each in wanted for row in self.table.scan(row_filter=each, selected_fields=fields).to_arrow().to_pylist()
        )
        return list({str(row): row for row in rows}.values())
