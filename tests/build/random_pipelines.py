"""Random pipelines: tables of every kind on two raw streams, which read one another, and the growth of the streams' schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from headrace.spec.model.types import Array, Column, Primitive, Struct
from tests.build import random_aggregates, random_keyed_tables, random_tables
from tests.build.random_queries import Field, Relation, Table, chance

PIPELINE = """\
name: pond
about: Random tables.
namespace: pond
streams:
  events: {topic: pond-events, format: json, schema: schemas/event.sql, table: pond.events}
  changes: {topic: pond-changes, format: debezium, schema: schemas/change.avsc, table: pond.changes}
"""
EVENT = """id STRING, k STRING, g STRING, n INT, amount DECIMAL(10, 2), op STRING, at TIMESTAMP, mail STRING,
    tags MAP<STRING, STRING>"""
GROWN_EVENT = EVENT.replace("n INT", "n BIGINT").replace("DECIMAL(10, 2)", "DECIMAL(12, 2)") + ", note STRING"
CHANGE = """{"type": "record", "name": "Envelope", "fields": [
  {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
    {"name": "k", "type": ["null", "string"]}, {"name": "g", "type": ["null", "string"]},
    {"name": "size", "type": ["null", "int"]},
    {"name": "unchanged", "type": ["null", {"type": "array", "items": "string"}]}]}]},
  {"name": "after", "type": ["null", "Value"]},
  {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}},
  {"name": "op", "type": "string"}]}"""
GROWN_CHANGE = (
    Column(
        "after",
        Struct(
            (
                Column("k", Primitive("string")),
                Column("g", Primitive("string")),
                Column("size", Primitive("long")),
                Column("unchanged", Array(Primitive("string"))),
                Column("note", Primitive("string")),
            )
        ),
    ),
)
_EVENTS = Relation(
    "events",
    "raw",
    (
        Field("id", "text", "id"),
        Field("k", "text", "k"),
        Field("g", "text", "g"),
        Field("n", "int", "n"),
        Field("amount", "decimal", "amount"),
        Field("op", "text", "op"),
        Field("at", "timestamp", "at"),
        Field("mail", "text", "mail"),
        Field("tags", "map", "tags"),
    ),
    only_grows=True,
    star=True,
)
_STAGED = Table(
    "a/staged.sql",
    "SELECT after.*, op, source.lsn AS n FROM pond.changes",
    Relation(
        "staged",
        "append",
        (
            Field("k", "text", "k"),
            Field("g", "text", "g"),
            Field("size", "int", "small"),
            Field("unchanged", "other", "names"),
            Field("op", "text", "op"),
            Field("n", "long", "n"),
        ),
        only_grows=True,
        star=True,
    ),
    "append, SELECT *",
)

_Make = Callable[[Random, str, Sequence[Relation]], Table | None]
_EARLY: Mapping[str, _Make] = {
    "appended": random_tables.append,
    "upsert": random_keyed_tables.upsert,
    "starred": random_keyed_tables.star,
    "history": random_keyed_tables.history,
    "captured": random_keyed_tables.captured,
}
_ALL: Mapping[str, _Make] = {
    **_EARLY,
    "added": partial(random_aggregates.grouped, added=True),
    "recomputed": partial(random_aggregates.grouped, added=False),
    "nested": random_aggregates.nested,
    "firsts": random_aggregates.first_rows,
    "filtered": random_aggregates.filtered,
    "viewed": random_aggregates.view,
    "features": random_tables.features,
    "entities": random_keyed_tables.entities,
    "full": random_tables.full,
    "python": random_tables.python,
}
_WEIGHTS = {"upsert": 3, "added": 4, "recomputed": 2, "viewed": 4, "history": 2}


@dataclass(frozen=True)
class RandomPipeline:
    """Files of a pipeline, and the files that change when its schemas grow.

    `keys` is how many keys its events have. `grows_at` says by what share of the rounds each stream's schema has grown.
    """

    tables: tuple[Table, ...]
    keys: int
    rounds: int
    grows_at: Mapping[str, float]

    @property
    def files(self) -> dict[str, str]:
        own = {"pipeline.yml": PIPELINE, "schemas/event.sql": EVENT, "schemas/change.avsc": CHANGE}
        return {**own, **{table.file: table.text for table in self.tables}}

    @property
    def grown_files(self) -> dict[str, str]:
        """The files after the schema of `events` has grown: some tables name its new column."""
        return {
            **self.files,
            "schemas/event.sql": GROWN_EVENT,
            **{table.file: table.grown or table.text for table in self.tables},
        }


def random_pipeline(random: Random, *, tables: int | None = None, rounds: int | None = None) -> RandomPipeline:
    """Return a pipeline of 6 to 12 tables, or of so many; the first of them read raw tables."""
    count = tables or random.randint(6, 12)
    chosen = [_STAGED]
    while len(chosen) < count:
        makers = _EARLY if len(chosen) < 3 else _ALL
        name = random.choices(list(makers), [_WEIGHTS.get(maker, 1) for maker in makers])[0]
        relations = [_EVENTS, *(table.relation for table in chosen)]
        table = makers[name](random, f"{name}_{len(chosen)}", relations)
        if table is not None:
            chosen.append(table)
    grows = {stream: random.uniform(0.2, 0.8) for stream in ("events", "changes") if chance(random, 0.5)}
    return RandomPipeline(tuple(chosen), random.choice((3, 6, 6, 20)), rounds or random.randint(12, 30), grows)
