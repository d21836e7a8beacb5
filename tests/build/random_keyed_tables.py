"""Random tables whose rows are events of keys: upserts, histories, entities, and those of a captured table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from headrace.spec.model.layers import HISTORY_COLUMNS
from tests.build.random_joins import with_joins, with_own_rows
from tests.build.random_queries import (
    Field,
    Relation,
    Selected,
    Source,
    Table,
    chance,
    condition,
    driver_source,
    expect,
    grown_text,
    select,
    settings,
    with_filter,
)


def star(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return an upsert or a history of `SELECT *`, which new columns of the raw table reach."""
    drivers = [relation for relation in relations if relation.star]
    if not drivers:
        return None
    driver = random.choice(drivers)
    hidden = "* EXCEPT (kafka_topic, kafka_partition, kafka_offset, kafka_timestamp, checkpoint_id, _extra)"
    text = f"SELECT {hidden if driver.kind == 'raw' else '*'} FROM pond.{driver.name}"
    lines = ["keys: [k]", "sequence_by: n"]
    key: tuple[str, ...] = ("k",)
    fields = driver.fields
    is_history = chance(random, 0.4) and not any(field.name in HISTORY_COLUMNS for field in fields)
    if is_history:
        lines, key, fields = [*lines, "stored_as_scd_type: 2"], ("k", "n"), _with_versions(fields, "n")
    if chance(random, 0.5):
        lines.append("apply_as_deletes: op = 'd'")
    kind = "history" if is_history else "upsert"
    relation = Relation(name, kind, fields, key, weight=int(is_history), star=True)
    return Table(f"a/{name}.sql", settings(lines) + text, relation, f"{kind}, SELECT *")


def captured(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return an upsert or a history of the captured table: with deletes, truncates and values that events omit."""
    driver = next(relation for relation in relations if relation.name == "staged")
    is_history, with_star = chance(random, 0.4), chance(random, 0.5)
    lines = ["keys: [k]", "sequence_by: n", "apply_as_deletes: op = 'd'", "unchanged: unchanged"]
    if chance(random, 0.7):
        lines.append("apply_as_truncates: op = 't'")
    lines.append("except_column_list: [op, unchanged]")
    fields = tuple(field for field in driver.fields if field.name not in ("op", "unchanged"))
    key: tuple[str, ...] = ("k",)
    if is_history:
        lines, key, fields = [*lines, "stored_as_scd_type: 2"], ("k", "n"), _with_versions(fields, "n")
    listed = "*" if with_star else ", ".join(field.name for field in driver.fields)
    kind = "history" if is_history else "upsert"
    relation = Relation(name, kind, fields, key, weight=int(is_history))
    return Table(f"a/{name}.sql", settings(lines) + f"SELECT {listed} FROM pond.staged", relation, f"{kind}, captured")


def upsert(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    events = _events(random, relations)
    if events is None:
        return None
    lines = events.lines(random)
    plain = {field.name: field for sql, field in events.columns.columns if sql.startswith("d.")}
    if events.driver.name == "events" and events.keys == ("id",) and "at" in plain and "op" not in events.hidden:
        lines += ["constant: [at]", *(["partition_by: [days(at)]"] if chance(random, 0.7) else [])]
    elif chance(random, 0.2):
        lines.append(f'partition_by: ["bucket(4, {events.keys[0]})"]')
    elif "g" in plain and "g" not in events.keys and chance(random, 0.15):
        lines.append("partition_by: [g]")
    relation = Relation(name, "upsert", events.stored, events.keys, weight=int("id" in events.keys or len(events.keys) > 1))
    text = settings(lines) + events.text
    label = "upsert with deletes" if events.deletes else "upsert"
    return Table(f"a/{name}.sql", text, relation, label, grown_text(random, events.driver, events.source, text))


def history(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    events = _events(random, [_without_versions(relation) for relation in relations])
    if events is None:
        return None
    lines = [*events.lines(random), "stored_as_scd_type: 2"]
    if len(events.sequence) > 1:
        lines.append(f"valid_from: {events.sequence[0]}")
    names = [field.name for field in events.stored if field.name not in (*events.keys, *events.sequence)]
    label = "history with deletes" if events.deletes else "history"
    if names and chance(random, 0.3):
        lines.append(f"track_history_except_column_list: [{random.choice(names)}]")
        label += ", partly tracked"
    relation = Relation(name, "history", _with_versions(events.stored, events.sequence[0]), (*events.keys, *events.sequence))
    text = settings(lines) + events.text
    return Table(f"a/{name}.sql", text, relation, label, grown_text(random, events.driver, events.source, text))


def entities(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return the only table of entities of a pipeline: their ids are comparable if there is one."""
    if any(field.type == "entity" for relation in relations for field in relation.fields):
        return None
    events = _events(random, [relation for relation in relations if relation.of(domains=("mail",))], most=0)
    if events is None:
        return None
    columns = {field.name: (sql, field) for sql, field in events.columns.columns if field.name not in events.hidden}
    mail = random.choice(events.source.of(domains=("mail",)))
    columns["mail"] = (mail.name, replace(mail, name="mail"))
    kind, limit = random.choice(("exact", "email")), random.choice((2, 3, 6, 50))
    lines = ["kind: entities", f"keys: [{', '.join(events.keys)}]", f"sequence_by: {events.sequence[0]}", "match:"]
    lines.append(f"  mail_match: {{from: mail, as: {kind}, max_records: {limit}}}")
    others = [field for _, field in columns.values() if field.type == "text" and field.name not in ("mail", *events.keys)]
    if others and chance(random, 0.5):
        lines.append(f"  other_match: {{from: {random.choice(others).name}, as: exact, max_records: {random.choice((2, 4))}}}")
    chosen = Selected(tuple(columns.values()))
    if "at" in columns and columns["at"][1].type == "timestamp" and chance(random, 0.5):
        lines.append("oldest_by: at")
    text = settings(lines) + f"{events.source.before}SELECT {chosen.text()}\n{events.source.clauses()}"
    fields = (*chosen.fields, Field("entity_id", "entity", "entity"), Field("mail_match", "text", "match"))
    relation = Relation(name, "entities", fields, events.keys, weight=int("id" in events.keys))
    return Table(f"b/{name}.sql", text, relation, "entities")


@dataclass(frozen=True)
class _Events:
    """A query whose rows are events of keys, and the settings that say so."""

    driver: Relation
    source: Source
    columns: Selected
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    deletes: str | None
    hidden: tuple[str, ...]
    expect: str | None

    @property
    def text(self) -> str:
        return f"{self.source.before}SELECT {self.columns.text()}\n{self.source.clauses()}"

    @property
    def stored(self) -> tuple[Field, ...]:
        return tuple(field for field in self.columns.fields if field.name not in self.hidden)

    def lines(self, random: Random) -> list[str]:
        lines = [f"keys: [{', '.join(self.keys)}]"]
        lines.append(f"sequence_by: {self.sequence[0] if len(self.sequence) == 1 else '[' + ', '.join(self.sequence) + ']'}")
        if self.deletes:
            lines.append(f"apply_as_deletes: {self.deletes}")
        if self.hidden:
            lines.append(f"except_column_list: [{', '.join(self.hidden)}]")
        if self.expect:
            lines += expect(random, self.expect)
        return lines


def _events(random: Random, relations: Sequence[Relation], *, most: int = 2) -> _Events | None:
    drivers = [
        relation for relation in relations if relation.of(domains=("k", "id", "g"), types=("text",)) and _sequences(relation)
    ]
    if not drivers:
        return None
    driver = random.choice(drivers)
    source = with_joins(random, driver_source(random, driver), relations, most=random.choice((0, 0, 1, 1, 2)) if most else 0)
    # An entity's id depends on the order of events, so it must not decide which of two rows is newer.
    source = replace(source, fields=tuple(field for field in source.fields if field.type != "entity"))
    source = with_filter(random, source)
    options = driver.of(domains=("k", "id", "g"), types=("text",))
    keys = list(
        {field.name: field for field in random.sample(options, min(len(options), random.choice((1, 1, 1, 2))))}.values()
    )
    if most and not source.before and chance(random, 0.15):
        source = with_own_rows(random, source, driver, keys)
    sequences = [field for field in _sequences(driver) if field not in keys]
    sequence = random.sample(sequences, min(len(sequences), random.choice((1, 1, 2))))
    needed = [(f"d.{field.name}", field) for field in (*keys, *sequence)]
    operations = driver.of(domains=("op",), types=("text",))
    deletes: str | None = None
    hidden: tuple[str, ...] = ()
    if operations and chance(random, 0.5):
        operation = operations[0]
        needed.append((f"d.{operation.name}", operation))
        deletes = f"{operation.name} = 'd'"
        hidden = (operation.name,) if chance(random, 0.6) and operation not in keys else ()
    times = driver.of(domains=("at",), types=("timestamp",))
    if times and chance(random, 0.6):
        needed.append((f"d.{times[0].name}", times[0]))
    columns = select(random, source, needed)
    expect = condition(random, columns.fields) if chance(random, 0.2) else None
    return _Events(
        driver,
        source,
        columns,
        tuple(field.name for field in keys),
        tuple(field.name for field in sequence),
        deletes,
        hidden,
        expect,
    )


def _sequences(relation: Relation) -> list[Field]:
    return relation.of(domains=("n",), types=("int", "long"))


def _with_versions(fields: tuple[Field, ...], sequence: str) -> tuple[Field, ...]:
    kind = next(field.type for field in fields if field.name == sequence)
    times = (Field("valid_from", kind, "n"), Field("valid_to", kind, "until"))
    return (*fields, *times, Field("is_current", "boolean", "flag"))


def _without_versions(relation: Relation) -> Relation:
    """Return a relation without the columns that every history adds, whose names a history's query can't use."""
    return replace(relation, fields=tuple(field for field in relation.fields if field.name not in HISTORY_COLUMNS))
