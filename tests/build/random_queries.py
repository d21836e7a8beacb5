"""The parts of random queries: relations, expressions, conditions and joins, whose values their inputs alone decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

GROUPS = ("x", "y", "z")
GROWN = "note"
"""The column that raw tables get while a pipeline runs."""


@dataclass(frozen=True)
class Field:
    """A column. Columns of one `domain` have values in common, so that they can be joined."""

    name: str
    type: str
    domain: str


@dataclass(frozen=True)
class Relation:
    """A table that queries can read.

    `key` tells its rows apart; without one, rows repeat. `weight` is how often the number of rows grows with that of events:
    0 for a table of few rows, 1 for one of as many rows as events. `star` says that new columns of the raw table reach it.
    """

    name: str
    kind: str
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    only_grows: bool = False
    weight: int = 1
    star: bool = False

    def of(self, *, domains: Sequence[str] = (), types: Sequence[str] = ()) -> list[Field]:
        return [
            field for field in self.fields if (not domains or field.domain in domains) and (not types or field.type in types)
        ]


@dataclass(frozen=True)
class Source:
    """What stands after FROM: the columns that can be selected, each with its alias, and how rows are joined and filtered.

    `key` are columns that tell the joined rows apart, empty if rows may repeat. `before` are common table expressions,
    `drivers` the tables whose rows become the query's rows.
    """

    text: str
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    weight: int
    drivers: tuple[str, ...]
    where: tuple[str, ...] = ()
    before: str = ""

    def of(self, *, domains: Sequence[str] = (), types: Sequence[str] = ()) -> list[Field]:
        return Relation("", "", self.fields).of(domains=domains, types=types)

    def clauses(self) -> str:
        return f"FROM {self.text}" + (f"\nWHERE {' AND '.join(self.where)}" if self.where else "")


def chance(random: Random, share: float) -> bool:
    return random.random() < share


def some(random: Random, fields: Sequence[Field], *, least: int, most: int) -> list[Field]:
    """Return a few of the fields, in their order."""
    chosen = random.sample(range(len(fields)), min(len(fields), random.randint(least, most)))
    return [fields[index] for index in sorted(chosen)]


def expression(random: Random, field: Field) -> tuple[str, Field]:
    """Return a random expression over a field, and the field that it makes (without a name)."""
    name = field.name
    options: list[tuple[str, str, str]] = [(name, field.type, field.domain)]
    if field.type in ("int", "long"):
        options += [
            (f"{name} + 1", field.type, "number"),
            (f"pmod({name}, 3)", field.type, "small"),
            (f"{name} % 2 = 0", "boolean", "flag"),
            (f"CAST({name} AS STRING)", "text", "digits"),
        ]
    elif field.type == "decimal":
        options += [(f"-{name}", "decimal", "money"), (f"{name} > 50", "boolean", "flag")]
    elif field.type == "text":
        options += [
            (f"coalesce({name}, 'none')", "text", field.domain),
            (f"upper({name})", "text", "words"),
            (f"concat('-', {name})", "text", "words"),
            (f"length({name})", "int", "small"),
        ]
    elif field.type == "timestamp":
        options += [(f"CAST({name} AS DATE)", "date", "day"), (f"date_trunc('hour', {name})", "timestamp", "hour")]
    elif field.type == "boolean":
        options += [(f"NOT {name}", "boolean", "flag"), (f"CASE WHEN {name} THEN 1 ELSE 0 END", "int", "small")]
    elif field.type == "map":
        options = [(f"{name}['g']", "text", "g"), (f"size({name})", "int", "small")]
    text, kind, domain = random.choice(options)
    return text, Field("", kind, domain)


def condition(random: Random, fields: Sequence[Field]) -> str:
    """Return a random condition over a few of the fields."""
    if chance(random, 0.15):
        first, second = condition(random, fields), condition(random, fields)
        return f"({first} OR {second})" if chance(random, 0.7) else f"NOT ({first} AND {second})"
    field = random.choice(fields)
    name = field.name
    if field.type in ("int", "long"):
        number = random.randrange(60)
        options = [f"{name} > {number}", f"{name} % 3 <> {number % 3}", f"{name} <= {number}", f"{name} IS NOT NULL"]
    elif field.type == "decimal":
        number = random.randrange(100)
        options = [f"{name} > {number}", f"{name} < {number}.50"]
    elif field.type == "text":
        few = random.sample(("k0", "k1", "k2", "k3", "k4"), 2)
        options = {
            "g": [f"{name} IS NOT NULL", f"{name} <> 'x'", f"{name} IN ('x', 'y')", f"coalesce({name}, '') <> 'z'"],
            "k": [f"{name} <> '{few[0]}'", f"{name} IN ('{few[0]}', '{few[1]}')", f"{name} > '{few[0]}'"],
            "op": [f"{name} <> 'd'", f"{name} = 'u'"],
        }.get(field.domain, [f"{name} IS NOT NULL", f"length({name}) > 1", f"{name} LIKE '%1%'"])
    elif field.type == "timestamp":
        day, hour = random.randint(1, 3), random.randrange(24)
        options = [f"{name} >= TIMESTAMP '2026-01-0{day} {hour:02}:00:00'", f"hour({name}) <> {hour}"]
    elif field.type == "date":
        options = [f"{name} <> DATE '2026-01-0{random.randint(1, 4)}'", f"{name} IS NOT NULL"]
    elif field.type == "boolean":
        options = [name, f"NOT {name}", f"coalesce({name}, true)"]
    else:
        options = [f"{name} IS NOT NULL"]
    return random.choice(options)


def driver_source(random: Random, relation: Relation) -> Source:
    """Return a relation as the driver `d` of a query, as it is, or through a subquery or a common table expression."""
    fields = tuple(replace(field, name=f"d.{field.name}") for field in relation.fields)
    key = tuple(f"d.{name}" for name in relation.key)
    plain = Source(f"pond.{relation.name} d", fields, key, relation.weight, (relation.name,))
    # Columns have aliases: those of a SELECT * over a struct are not known before Spark has analysed it.
    inside = [replace(field, name=f"s.{field.name}") for field in relation.fields]
    names = ", ".join(field.name for field in inside)
    inner = f"SELECT {names} FROM pond.{relation.name} s WHERE {condition(random, inside)}"
    if chance(random, 0.1):
        return replace(plain, text=f"({inner}) d")
    if chance(random, 0.1):
        return replace(plain, text="chosen d", before=f"WITH chosen AS ({inner})\n")
    return plain


def with_filter(random: Random, source: Source, *, share: float = 0.4) -> Source:
    if not chance(random, share):
        return source
    return replace(source, where=(*source.where, condition(random, source.fields)))


@dataclass(frozen=True)
class Selected:
    """The columns of a SELECT list: what is written, and the field that it becomes."""

    columns: tuple[tuple[str, Field], ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for _, field in self.columns)

    def text(self) -> str:
        return ", ".join(sql if sql.split(".")[-1] == field.name else f"{sql} AS {field.name}" for sql, field in self.columns)


def select(random: Random, source: Source, needed: Sequence[tuple[str, Field]] = (), *, most: int = 4) -> Selected:
    """Return a SELECT list: the needed columns, some others, and some expressions."""
    columns = {field.name: (sql, field) for sql, field in needed}
    for field in some(random, source.fields, least=1, most=most):
        plain = field.name.split(".")[-1]
        if chance(random, 0.6) and plain not in columns and field.type != "map":
            columns[plain] = (field.name, replace(field, name=plain))
        else:
            sql, result = expression(random, field)
            name = next(name for number in count(len(columns)) if (name := f"c{number}") not in columns)
            columns[name] = (sql, replace(result, name=name))
    return Selected(tuple(columns.values()))


@dataclass(frozen=True)
class Table:
    """A file of a pipeline. `label` names its kind in the summary, `grown` is its text after its raw table has grown."""

    file: str
    text: str
    relation: Relation
    label: str
    grown: str | None = None


def settings(lines: Sequence[str]) -> str:
    """Return the comment on top of a SQL file."""
    return "".join(f"{line}\n" for line in ("/*", *lines, "*/"))


def expect(random: Random, that: str) -> list[str]:
    """Return the lines of an expectation."""
    return ["expect:", f'  it holds: {{that: "{that}", on_failure: {random.choice(("warn", "drop", "quarantine"))}}}']


def unique_sources(relations: Sequence[Relation]) -> list[Relation]:
    """Return the relations whose rows have a key."""
    return [relation for relation in relations if relation.key]


def grown_text(random: Random, driver: Relation, source: Source, text: str) -> str | None:
    """Return the text of a table that names the raw table's new column, or None."""
    if driver.kind != "raw" or source.text.split("\n")[0] != f"pond.{driver.name} d" or chance(random, 0.5):
        return None
    return text.replace("\nFROM ", f", d.{GROWN} AS grown\nFROM ", 1)
