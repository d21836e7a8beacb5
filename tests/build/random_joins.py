"""Random joins of a query's source to lookups, each of which can be followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.build.random_queries import Field, Relation, Source, chance, condition

_KINDS = ("LEFT", "LEFT", "LEFT", "INNER", "INNER", "INNER", "SEMI", "ANTI", "IN", "EXISTS", "DERIVED")


@dataclass(frozen=True)
class _Join:
    """A lookup, and the pairs of its fields and the source's that are equal."""

    lookup: Relation
    pairs: tuple[tuple[Field, Field], ...]

    @property
    def finds_one(self) -> bool:
        """Whether a row is joined to one row at most."""
        return bool(self.lookup.key) and {*self.lookup.key} <= {field.name for field, _ in self.pairs}

    @property
    def is_cast(self) -> bool:
        return any(field.type != other.type for field, other in self.pairs)

    def on(self, alias: str) -> str:
        return " AND ".join(
            f"{alias}.{field.name} = {other.name if field.type == other.type else f'CAST({other.name} AS STRING)'}"
            for field, other in self.pairs
        )


def with_joins(
    random: Random, source: Source, lookups: Sequence[Relation], *, most: int, unique: bool = False, kinds: Sequence[str] = ()
) -> Source:
    """Return the source joined to up to `most` lookups, on one or two columns of the same domains.

    With `unique`, a row is joined to one row at most. A join that multiplies rows is made once at most, so that the rows of a
    few hundred events stay few. A driver is joined to itself by the keys of a table alone: see
    `with_own_rows`.
    """
    lookups = [lookup for lookup in lookups if lookup.name not in source.drivers]
    for number in range(1, most + 1):
        options = [
            join
            for lookup in lookups
            for join in _possible(random, source, lookup)
            if join.finds_one or (not unique and source.weight + lookup.weight <= 2)
        ]
        if not options:
            return source
        join = random.choice(options)
        lookups = [lookup for lookup in lookups if lookup != join.lookup]
        source = _joined(random, source, join, kind=random.choice(kinds or _KINDS), alias=f"l{number}")
    return source


def with_own_rows(random: Random, source: Source, driver: Relation, keys: Sequence[Field]) -> Source:
    """Return the source joined to counts of its own driver's rows that have the same keys."""
    names = ", ".join(f"s.{key.name}" for key in keys)
    condition = " AND ".join(f"own.{key.name} = d.{key.name}" for key in keys)
    kind = random.choice(("JOIN", "LEFT JOIN"))
    inner = f"SELECT {names}, count(*) AS rows_of_key FROM pond.{driver.name} s GROUP BY {names}"
    having = f" HAVING count(*) > {random.randint(0, 1)}"
    return replace(
        source,
        text=f"{source.text}\n{kind} ({inner}{having}) own ON {condition}",
        fields=(*source.fields, Field("own.rows_of_key", "long", "rows")),
    )


def _possible(random: Random, source: Source, lookup: Relation) -> Iterator[_Join]:
    """Return the joins by one pair of columns, and some by two."""
    is_plain = not source.before and "(SELECT" not in source.text
    pairs = [(field, other) for field in lookup.fields for other in source.fields if _fit(field, other, is_plain=is_plain)]
    for pair in pairs:
        yield _Join(lookup, (pair,))
        others = [other for other in pairs if other[0] != pair[0] and other[1] != pair[1]]
        keyed = [other for other in others if {pair[0].name, other[0].name} == {*lookup.key}]
        if keyed or (others and chance(random, 0.1)):
            yield _Join(lookup, (pair, random.choice(keyed or others)))


def _fit(field: Field, other: Field, *, is_plain: bool) -> bool:
    if field.domain == other.domain and field.type == other.type:
        return field.type in ("text", "int", "long", "date", "timestamp", "entity")
    return is_plain and field.domain == "digits" and other.domain in ("n", "number") and other.type in ("int", "long")


def _joined(random: Random, source: Source, join: _Join, *, kind: str, alias: str) -> Source:
    lookup, on = join.lookup, join.on(alias)
    if kind in ("SEMI", "ANTI"):
        return replace(source, text=f"{source.text}\nLEFT {kind} JOIN pond.{lookup.name} {alias} ON {on}")
    if kind == "IN" and not join.is_cast and len(join.pairs) == 1:
        field, other = join.pairs[0]
        inner = f"SELECT {alias}.{field.name} FROM pond.{lookup.name} {alias}"
        return replace(source, where=(*source.where, f"{other.name} IN ({inner})"))
    if kind == "EXISTS" and not join.is_cast:
        return replace(source, where=(*source.where, f"EXISTS (SELECT 1 FROM pond.{lookup.name} {alias} WHERE {on})"))
    if kind == "DERIVED" and not join.is_cast:
        names = ", ".join(f"s.{field.name}" for field, _ in join.pairs)
        inner = f"SELECT {names}, count(*) AS rows_there FROM pond.{lookup.name} s GROUP BY {names}"
        return replace(
            source,
            text=f"{source.text}\nLEFT JOIN ({inner}) {alias} ON {on}",
            fields=(*source.fields, Field(f"{alias}.rows_there", "long", "rows")),
        )
    fields = tuple(replace(field, name=f"{alias}.{field.name}") for field in lookup.fields)
    also = f" AND {condition(random, fields)}" if chance(random, 0.1) else ""
    return replace(
        source,
        text=f"{source.text}\n{'JOIN' if kind == 'INNER' else 'LEFT JOIN'} pond.{lookup.name} {alias} ON {on}{also}",
        fields=(*source.fields, *fields),
        key=source.key if join.finds_one else (),
        weight=source.weight if join.finds_one else 2,
    )
