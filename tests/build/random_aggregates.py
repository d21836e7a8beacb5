"""Random tables of kind aggregate: added and recomputed aggregates, nested ones, unions, and queries without a GROUP BY."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from tests.build.random_joins import with_joins
from tests.build.random_queries import (
    Field,
    Relation,
    Source,
    Table,
    chance,
    condition,
    driver_source,
    expect,
    select,
    settings,
    unique_sources,
    with_filter,
)

_GROUPED = ("g", "k", "day", "op", "small", "flag", "hour", "count", "entity")
"""Domains with few values, by which rows are grouped."""

_ORDERED = ("text", "int", "long", "decimal", "timestamp", "date", "boolean")

_Aggregate = Callable[[Random, Source], tuple[str, str, str]]


def grouped(random: Random, name: str, relations: Sequence[Relation], *, added: bool) -> Table | None:
    """Return a table with one GROUP BY, over one driver or a union of two, maintained by adding if `added`."""
    source = _union(random, relations) if chance(random, 0.2) else None
    if source is None:
        source = driver_source(random, random.choice(relations))
        source = with_joins(random, source, relations, most=random.choice((0, 0, 0, 1, 1, 2)))
    source = with_filter(random, source)
    keys = _grouping(random, source)
    if not keys:
        return None
    outputs = _aggregates(random, source, added=added)
    columns = [*keys, *outputs]
    text = f"{source.before}SELECT {_list(columns)}\n{source.clauses()}\nGROUP BY {', '.join(sql for sql, _ in keys)}"
    inputs = re.findall(r"pond\.\w+", text)
    if added and len({*inputs}) == len(inputs) and chance(random, 0.15):
        text += f"\nHAVING count(*) > {random.randint(1, 2)}"
    names = [field.name for _, field in keys]
    lines = [f"keys: [{', '.join(names)}]"]
    counts = [field.name for _, field in outputs if field.domain == "count"]
    if counts and chance(random, 0.2):
        lines += expect(random, f"{counts[0]} > 1")
    relation = Relation(name, "aggregate", tuple(field for _, field in columns), tuple(names), weight=_weight(keys))
    return Table(f"b/{name}.sql", settings(lines) + text, relation, "aggregate, added" if added else "aggregate, recomputed")


def nested(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table that aggregates aggregates."""
    source = with_filter(random, driver_source(random, random.choice(relations)))
    keys = [key for key in _grouping(random, source) if key[1].domain != "entity"]
    inner = [field for field in source.of(types=("text",)) if field.name not in [sql for sql, _ in keys]]
    if not keys or not inner:
        return None
    part = random.choice(inner)
    names = ", ".join(field.name for _, field in keys)
    text = (
        f"{source.before}SELECT {names}, max(a) AS most, count(*) AS parts, sum(a) AS total\n"
        f"FROM (SELECT {_list(keys)}, {part.name} AS part, count(*) AS a {source.clauses()} "
        f"GROUP BY {', '.join(sql for sql, _ in keys)}, {part.name})\nGROUP BY {names}"
    )
    fields = (*(field for _, field in keys), *(Field(name, "long", "count") for name in ("most", "parts", "total")))
    relation = Relation(name, "aggregate", fields, tuple(field.name for _, field in keys), weight=_weight(keys))
    return Table(f"b/{name}.sql", settings([f"keys: [{names}]"]) + text, relation, "aggregate, nested")


def filtered(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table that shows the keys of a driver that have several values, which no change says of itself."""
    driver = random.choice(relations)
    source = with_filter(random, driver_source(random, driver))
    keys = source.of(types=("text",), domains=("g", "k"))
    values = [field for field in source.fields if field.type in _ORDERED]
    if not keys or len(values) < 2:
        return None
    key = random.choice(keys)
    value = random.choice([field for field in values if field != key])
    text = (
        f"{source.before}SELECT part, several\nFROM (SELECT {key.name} AS part, count(DISTINCT {value.name}) AS several\n"
        f"{source.clauses()}\nGROUP BY {key.name})\nWHERE several > {random.randint(1, 2)}"
    )
    fields = (replace(key, name="part"), Field("several", "long", "count"))
    relation = Relation(name, "aggregate", fields, ("part",), weight=0)
    return Table(f"b/{name}.sql", settings(["keys: [part]"]) + text, relation, "aggregate, filtered")


def first_rows(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table of the first row of each group. All that is shown is ordered by, so ties don't show."""
    source = with_filter(random, driver_source(random, random.choice(relations)))
    groups = source.of(types=("text",), domains=("g", "k"))
    shown = [field for field in source.fields if field.type in ("int", "long", "text", "timestamp", "decimal")]
    if not groups or not shown:
        return None
    group = random.choice(groups)
    key = group.name.split(".")[-1]
    others = [field for field in random.sample(shown, min(3, len(shown))) if field.name != group.name]
    if not others:
        return None
    order = ", ".join(f"{field.name} {random.choice(('ASC', 'DESC'))}" for field in others)
    columns = [(group.name, replace(group, name=key)), *((field.name, replace(field, name=_plain(field))) for field in others)]
    names = ", ".join(field.name for _, field in columns)
    text = (
        f"{source.before}SELECT {names}\nFROM (SELECT {_list(columns)}, "
        f"row_number() OVER (PARTITION BY {group.name} ORDER BY {order}) AS place\n{source.clauses()})\nWHERE place = 1"
    )
    relation = Relation(name, "aggregate", tuple(field for _, field in columns), (key,), weight=0)
    return Table(f"b/{name}.sql", settings([f"keys: [{key}]"]) + text, relation, "aggregate, first rows")


def view(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table with a row for each row of its driver, joined to lookups that have one row for it at most."""
    driver = random.choice(unique_sources(relations) or [None])
    if driver is None:
        return None
    source = with_joins(random, driver_source(random, driver), relations, most=random.choice((1, 1, 2, 3)), unique=True)
    source = with_filter(random, source, share=0.3)
    needed = [(f"d.{field.name}", field) for field in driver.fields if field.name in driver.key]
    columns = select(random, source, needed, most=5)
    text = f"{source.before}SELECT {columns.text()}\n{source.clauses()}"
    relation = Relation(name, "aggregate", columns.fields, driver.key, weight=driver.weight)
    return Table(f"b/{name}.sql", settings([f"keys: [{', '.join(driver.key)}]"]) + text, relation, "aggregate, row by row")


def _union(random: Random, relations: Sequence[Relation]) -> Source | None:
    """Return the rows of two drivers, as far as they have columns of the same domains in common."""
    first, second = random.choice(relations), random.choice(relations)
    pairs = [
        (ours, theirs)
        for ours in first.fields
        for theirs in second.fields
        if (ours.domain, ours.type) == (theirs.domain, theirs.type) and ours.type in _ORDERED
    ]
    pairs = random.sample(pairs, min(len(pairs), 5))
    if len(pairs) < 2 or first.name == second.name:
        return None
    fields = tuple(replace(ours, name=f"v{index}") for index, (ours, _) in enumerate(pairs))
    left = ", ".join(f"{ours.name} AS v{index}" for index, (ours, _) in enumerate(pairs))
    right = ", ".join(f"{theirs.name} AS v{index}" for index, (_, theirs) in enumerate(pairs))
    where = f" WHERE {condition(random, first.fields)}" if chance(random, 0.3) else ""
    before = f"WITH both AS (SELECT {left} FROM pond.{first.name}{where} UNION ALL SELECT {right} FROM pond.{second.name})\n"
    qualified = tuple(replace(field, name=f"d.{field.name}") for field in fields)
    return Source("both d", qualified, (), max(first.weight, second.weight), (first.name, second.name), before=before)


def _grouping(random: Random, source: Source) -> list[tuple[str, Field]]:
    """Return one or two expressions to group by, and the fields that they make."""
    options = source.of(domains=_GROUPED)
    options += source.of(types=("timestamp",), domains=("at",))
    options += source.of(types=("int", "long"), domains=("n",))
    chosen: dict[str, tuple[str, Field]] = {}
    for field in random.sample(options, min(len(options), random.choice((1, 1, 2)))):
        if field.domain == "at":
            chosen["day"] = (f"CAST({field.name} AS DATE)", Field("day", "date", "day"))
        elif field.domain == "n":
            chosen["third"] = (f"pmod({field.name}, 3)", Field("third", field.type, "small"))
        else:
            name = _plain(field)
            name = f"by_{name}" if re.fullmatch(r"a\d+|most|parts|total", name) else name
            chosen[name] = (field.name, replace(field, name=name))
    return list(chosen.values())


def _aggregates(random: Random, source: Source, *, added: bool) -> list[tuple[str, Field]]:
    makers: list[_Aggregate] = [added_aggregate] * random.randint(1, 4)
    if not added:
        makers = [recomputed_aggregate, *random.sample([*makers, recomputed_aggregate], random.randint(1, 2))]
    outputs = []
    for index, make in enumerate(makers):
        text, kind, domain = make(random, source)
        outputs.append((text, Field(f"a{index}", kind, domain)))
    return outputs


def _list(columns: Sequence[tuple[str, Field]]) -> str:
    return ", ".join(f"{sql} AS {field.name}" for sql, field in columns)


def _plain(field: Field) -> str:
    return field.name.split(".")[-1]


def _weight(keys: Sequence[tuple[str, Field]]) -> int:
    return int(len(keys) > 1)


def added_aggregate(random: Random, source: Source) -> tuple[str, str, str]:
    """Return an aggregate that is maintained by adding, its type and its domain."""
    fields = [field for field in source.fields if field.type in _ORDERED]
    any_field = random.choice(fields)
    options = [
        ("count(*)", "long", "count"),
        (f"count({any_field.name})", "long", "count"),
        (f"count_if({condition(random, source.fields)})", "long", "count"),
        (f"{random.choice(('min', 'max'))}({any_field.name})", any_field.type, any_field.domain),
        (f"{random.choice(('bool_and', 'bool_or'))}({condition(random, source.fields)})", "boolean", "flag"),
        (f"size(collect_set({any_field.name}))", "int", "small"),
    ]
    numbers = source.of(types=("int", "decimal"))
    if numbers:
        number = random.choice(numbers)
        options += [(f"sum({number.name})", "decimal" if number.type == "decimal" else "long", "total")] * 2
        options += [(f"avg({number.name})", "other", "average")]
        pair = f"{any_field.name}, struct({number.name}, {any_field.name})"
        options += [(f"{random.choice(('min_by', 'max_by'))}({pair})", any_field.type, any_field.domain)]
        options += [
            (f"max(struct({number.name} AS first, {any_field.name} AS second)).second", any_field.type, any_field.domain)
        ]
    text, kind, domain = random.choice(options)
    if chance(random, 0.25) and not text.startswith(("count_if", "size", "max(struct")):
        text = f"{text} FILTER (WHERE {condition(random, source.fields)})"
        if kind == "long" and chance(random, 0.5):
            text = f"coalesce({text}, 0)"
    return text, kind, domain


def recomputed_aggregate(random: Random, source: Source) -> tuple[str, str, str]:
    """Return an aggregate that needs all rows of a key, its type and its domain."""
    field = random.choice([field for field in source.fields if field.type in _ORDERED])
    options = [
        (f"count(DISTINCT {field.name})", "long", "count"),
        (f"array_sort(collect_list({field.name}))", "other", "list"),
        (f"count(DISTINCT {field.name}) FILTER (WHERE {condition(random, source.fields)})", "long", "count"),
    ]
    for number in source.of(types=("int",))[:1]:
        options += [
            (f"sum(CAST({number.name} AS DOUBLE))", "other", "total"),
            (f"percentile({number.name}, 0.5)", "other", "average"),
            (f"sum(DISTINCT {number.name})", "long", "total"),
        ]
    return random.choice(options)
