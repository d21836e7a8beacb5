"""Random tables of the other kinds: append, features, full, and those of Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.build.random_aggregates import grouped
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
    grown_text,
    select,
    settings,
    unique_sources,
    with_filter,
)


def append(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table that adds rows of a driver that only grows, joined to tables whose every change rebuilds it, if to any."""
    driver = random.choice([relation for relation in relations if relation.only_grows])
    source, lines = driver_source(random, driver), []
    lookups = [relation for relation in unique_sources(relations) if relation.weight == 0]
    if lookups and chance(random, 0.15):
        lookup = random.choice(lookups)
        source = with_joins(random, source, [lookup], most=1, unique=True, kinds=("LEFT", "INNER"))
        if lookup.kind != "full" and f"pond.{lookup.name} " in source.text:
            lines = [f"rebuild_on: {{pond.{lookup.name}: all}}"]
    grows = not lines and "\n" not in source.text
    columns = select(random, source, [(f"d.{field.name}", field) for field in driver.fields if field.type != "map"][:5])
    if chance(random, 0.2):
        lines += expect(random, condition(random, columns.fields))
    source = with_filter(random, source)
    text = (settings(lines) if lines else "") + f"{source.before}SELECT {columns.text()}\n{source.clauses()}"
    relation = Relation(name, "append", columns.fields, only_grows=grows)
    return Table(f"a/{name}.sql", text, relation, "append", grown_text(random, driver, source, text))


def features(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table of sums over a sliding window. Its frame is a range: rows of one time are in it together."""
    drivers = [relation for relation in unique_sources(relations) if relation.of(types=("timestamp",)) and _parts(relation)]
    if not drivers:
        return None
    driver = random.choice(drivers)
    source = with_filter(random, Source(f"pond.{driver.name} d", _qualified(driver.fields), (), 1, (driver.name,)), share=0.3)
    part, time = random.choice(_parts(driver)), random.choice(driver.of(types=("timestamp",)))
    hours = random.choice((1, 2, 12, 24))
    needed = dict.fromkeys((*driver.key, part.name, time.name))
    fields = [field for field in driver.fields if field.name in needed]
    numbers = driver.of(types=("int", "decimal"))
    calls = [("count(*)", "long", "count")]
    for number in numbers[:2]:
        calls += [(f"{call}(d.{number.name})", "other", "total") for call in random.sample(("sum", "avg", "min", "max"), 2)]
    outputs = [(text, Field(f"w{index}", kind, domain)) for index, (text, kind, domain) in enumerate(calls)]
    listed = [f"d.{field.name}" for field in fields] + [f"{text} OVER w AS {field.name}" for text, field in outputs]
    lines = [f"keys: [{', '.join(driver.key)}]"]
    lines.append(f"window: {{partition_by: [{part.name}], order_by: {time.name}, range: {hours} hours}}")
    frame = f"RANGE BETWEEN INTERVAL {hours} HOURS PRECEDING AND CURRENT ROW"
    text = (
        f"SELECT {', '.join(listed)}\n{source.clauses()}\n"
        f"WINDOW w AS (PARTITION BY d.{part.name} ORDER BY d.{time.name} {frame})"
    )
    relation = Relation(name, "features", (*fields, *(field for _, field in outputs)), driver.key, weight=driver.weight)
    return Table(f"b/{name}.sql", settings(lines) + text, relation, "features")


def full(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table that every build writes again: what an aggregate says, or distinct rows."""
    if chance(random, 0.6):
        table = grouped(random, name, relations, added=chance(random, 0.5))
        if table is None:
            return None
        text = settings(["kind: full"]) + table.text.split("*/\n", 1)[1]
        return Table(f"c/{name}.sql", text, replace(table.relation, kind="full"), "full")
    source = driver_source(random, random.choice(relations))
    source = with_filter(random, with_joins(random, source, relations, most=random.choice((0, 1, 2))))
    columns = select(random, source)
    text = f"{source.before}SELECT DISTINCT {columns.text()}\n{source.clauses()}"
    relation = Relation(name, "full", columns.fields, weight=source.weight)
    return Table(f"c/{name}.sql", settings(["kind: full"]) + text, relation, "full")


_PYTHON = '''from headrace import table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@table({settings})
def {name}({parameters}) -> DataFrame:
    """Return {about}."""
    return {body}
'''


def python(random: Random, name: str, relations: Sequence[Relation]) -> Table | None:
    """Return a table of a Python function: an aggregate, with or without a lookup that is declared, or an upsert."""
    drivers = [
        relation for relation in relations if relation.of(domains=("g",), types=("text",)) and relation.of(types=("int",))
    ]
    if not drivers:
        return None
    driver = random.choice(drivers)
    group, number = random.choice(driver.of(domains=("g",), types=("text",))), random.choice(driver.of(types=("int",)))
    key = random.choice(driver.of(domains=("k", "g"), types=("text",)))
    lookups = [relation for relation in unique_sources(relations) if relation.key == (group.name,) and relation != driver]
    parameters = f"{driver.name}: DataFrame"
    fields: tuple[Field, ...]
    if chance(random, 0.3) and key.name != number.name:
        fields = (key, replace(number, domain="n")) if key != group else (key, number)
        body = f'{driver.name}.select("{key.name}", "{number.name}").where(F.col("{number.name}") % 4 != 1)'
        options = f'keys=["{key.name}"], sequence_by="{number.name}"'
        relation = Relation(name, "upsert", fields, (key.name,), weight=0)
        kind, about = "Python upsert", "the newest number of each key"
    else:
        joined, options = driver.name, f'keys=["{group.name}"]'
        totals = f'F.sum("{number.name}").alias("total"), F.count_distinct("{number.name}").alias("numbers")'
        if lookups and chance(random, 0.6):
            lookup = random.choice(lookups)
            parameters += f", {lookup.name}: DataFrame"
            joined += f'.join({lookup.name}.select("{group.name}", F.lit(1).alias("is_there")), "{group.name}", "left")'
            totals += ', F.max("is_there").alias("is_there")'
            options += f', rebuild_on={{"pond.{lookup.name}": ["{group.name}"]}}'
        body = f'{joined}.groupBy("{group.name}").agg({totals})'
        fields = (group, Field("total", "long", "total"), Field("numbers", "long", "count"))
        relation = Relation(name, "aggregate", fields, (group.name,), weight=0)
        kind, about = "Python aggregate", "totals of each group"
    text = _PYTHON.format(settings=options, name=name, parameters=parameters, about=about, body=body)
    return Table(f"c/{name}.py", text, relation, kind)


def _parts(relation: Relation) -> list[Field]:
    return relation.of(domains=("k", "g"), types=("text",))


def _qualified(fields: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(replace(field, name=f"d.{field.name}") for field in fields)
