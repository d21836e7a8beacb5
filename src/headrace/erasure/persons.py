"""Who is meant: from one email or id to all that tells the same person, as the pipeline's entities say it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.table import Table

from headrace.erasure.identifiers import Identifiers, identify
from headrace.errors import ErasureError
from headrace.spec.pipeline import TableName
from headrace.tables.catalog import load_table

_TOLD = ("email", "email_normalized", "phone", "phone_normalized")
_SHOWN = ("entity_id", "source", "source_id", *_TOLD)
_AT_ONCE = 500

Record = Mapping[str, str | None]


@dataclass(frozen=True)
class Person:
    """One person: all that tells them, the records that the pipeline knows of them, and values that others have as well.

    `shared` are not among the identifiers: by them another's rows would go.
    """

    identifiers: Identifiers
    records: tuple[Record, ...] = ()
    shared: tuple[str, ...] = ()


def find_person(catalog: Catalog, entities: TableName | None, asked: Identifiers) -> Person:
    """Gives back the person that one of these identifiers tells: without a table of entities, by these alone.

    An ErasureError where the identifiers are those of several persons, because then nobody could say whose rows go.
    """
    table = load_table(catalog, entities) if entities else None
    if table is None or table.current_snapshot() is None:
        return Person(asked)
    have = {field.name for field in table.schema().fields}
    found = _entities_of(table, replace(asked, emails=frozenset(), written=frozenset()), have)
    if len(found) != 1:  # an id tells one person even where an email is shared
        found = _entities_of(table, asked, have)
    if not found:
        return Person(asked)
    if len(found) > 1:
        raise ErasureError(
            f"the same email or id belongs to {len(found)} persons",
            where=str(entities),
            next_step="Name one of them by the id of a record: --id SOURCE:ID",
        )
    records = _scan(table, [_is("entity_id", found.pop())], have)
    mine = asked | identify(ids=((str(each["source"]), each["source_id"]) for each in records))
    shared: list[str] = []
    for name in (each for each in _TOLD if each in have):
        values = {str(each[name]) for each in records if each[name]}
        others = _of_others(table, name, values, {str(each["entity_id"]) for each in records}, have)
        shared += sorted(others - asked.written)
        own = values - others
        mine |= identify(emails=own) if name.startswith("email") else identify(phones=own)
    return Person(mine, tuple(records), tuple(dict.fromkeys(shared)))


def _entities_of(table: Table, asked: Identifiers, have: Collection[str]) -> set[str]:
    """Gives back the entities that any of the identifiers names; emails and ids only, because phones are passed on."""
    wanted: list[BooleanExpression] = []
    emails = sorted(asked.emails | {each for each in asked.written if "@" in each})
    wanted += [_is(name, each) for name in ("email", "email_normalized") if name in have for each in emails]
    wanted += [And(_is("source", kind), _is("source_id", each)) for kind, ids in asked.ids.items() for each in sorted(ids)]
    return {str(each["entity_id"]) for each in _scan(table, wanted, have)}


def _of_others(table: Table, name: str, values: set[str], mine: set[str], have: Collection[str]) -> set[str]:
    """Gives back those of the values that a record of another entity has too."""
    ordered = sorted(values)
    parts = [ordered[at : at + _AT_ONCE] for at in range(0, len(ordered), _AT_ONCE)]
    found = _scan(table, [In(term=Reference(name), values={literal(each) for each in part}) for part in parts], have)
    return {str(each[name]) for each in found if str(each["entity_id"]) not in mine}


def _is(name: str, value: str) -> BooleanExpression:
    return EqualTo(term=Reference(name), value=literal(value))


def _scan(table: Table, wanted: Sequence[BooleanExpression], have: Collection[str]) -> list[Record]:
    fields = tuple(name for name in _SHOWN if name in have)
    rows: Iterable[Record] = (
        row for each in wanted for row in table.scan(row_filter=each, selected_fields=fields).to_arrow().to_pylist()
    )
    return list({tuple(row.items()): row for row in rows}.values())
