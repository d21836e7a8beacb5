"""Edges, clusters and stable ids on frames alone: however records come, the same are together, and ids last."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.layers.entities.index import FILE_NUMBER
from headrace.layers.entities.resolve import Rules, resolve, shared_too_widely
from headrace.layers.entities.touched import Resolved, resolve_change
from headrace.spec.matching import ENTITY_ID, PREVIOUS, UNUSED, Match

MATCHES = (Match("email", "email", "exact", max_records=3), Match("phone", "phone", "exact", max_records=2))
RULES = Rules(("source", "id"), "age", MATCHES)
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "source": pl.String,
    "id": pl.String,
    "age": pl.Int64,
    "email": pl.String,
    "phone": pl.String,
    ENTITY_ID: pl.String,
    PREVIOUS: pl.List(pl.String),
    UNUSED: pl.List(pl.String),
    FILE_NUMBER: pl.UInt32,
}
KEYS = list(RULES.keys)
Key = tuple[str, str]
Values = tuple[int, str | None, str | None]

keys = st.tuples(st.sampled_from("ab"), st.sampled_from("123456"))
values = st.tuples(st.integers(0, 5), st.sampled_from([None, *"uvwx"]), st.sampled_from([None, *"pqrs"]))
changes = st.dictionaries(keys, st.none() | values, min_size=1, max_size=4)


class Index:
    """A table of entities as its builds see it, one change after the other."""

    def __init__(self) -> None:
        self.rows = pl.DataFrame(schema=SCHEMA)

    def apply(self, change: dict[Key, Values | None]) -> Resolved:
        touched = pl.DataFrame(list(change), schema=KEYS, orient="row")
        new = _frame({key: value for key, value in change.items() if value is not None})
        found = resolve_change(self.rows, new, touched, RULES)
        came = new.drop(ENTITY_ID, PREVIOUS, UNUSED).join(found.new, on=KEYS)
        rest = self.rows.join(touched, on=KEYS, how="anti")
        stays = rest.join(found.changed, on=KEYS, how="anti")
        moved = rest.drop(ENTITY_ID, PREVIOUS, UNUSED).join(found.changed, on=KEYS)
        self.rows = pl.concat([each.select(*SCHEMA) for each in (stays, moved, came)])
        return found

    def entities(self) -> dict[Key, str]:
        return {(source, each): entity for source, each, entity in self.rows.select(*KEYS, ENTITY_ID).iter_rows()}


def _frame(records: dict[Key, Values]) -> pl.DataFrame:
    rows = [(*key, *value, None, None, None, 0) for key, value in records.items()]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _resolve_all(records: pl.DataFrame) -> pl.DataFrame:
    return resolve(records, RULES, unused={each.column: shared_too_widely(records, each) for each in MATCHES})


def _clusters(rows: pl.DataFrame) -> set[frozenset[Key]]:
    grouped = rows.group_by(ENTITY_ID).agg(pl.struct(KEYS).alias("keys"))
    return {frozenset((each["source"], each["id"]) for each in row) for row in grouped["keys"].to_list()}


def _by_hand(records: dict[Key, Values]) -> set[frozenset[Key]]:
    """Gives back the clusters, found in the plainest way."""
    together = {key: {key} for key in records}
    for index, match in enumerate(MATCHES, start=1):
        for value in {record[index] for record in records.values()} - {None}:
            sharing = [key for key, record in records.items() if record[index] == value]
            if len(sharing) <= match.max_records:
                for key in sharing:
                    merged = together[sharing[0]] | together[key]
                    for member in merged:
                        together[member] = merged
    return {frozenset(each) for each in together.values()}


@given(st.lists(changes, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_changes_one_by_one_end_as_all_at_once(history: list[dict[Key, Values | None]]) -> None:
    index, records = Index(), dict[Key, Values]()
    for change in history:
        before = index.entities()
        untouched = index.rows
        found = index.apply(change)
        records.update({key: value for key, value in change.items() if value is not None})
        for key in (key for key, value in change.items() if value is None):
            records.pop(key, None)
        # The same are together as if all had come at once, and by the plainest way to find it.
        assert _clusters(index.rows) == _clusters(_resolve_all(_frame(records))) == _by_hand(records)
        # What too many share is known of every record that has it.
        counts = {each.column: set(shared_too_widely(index.rows, each)) for each in MATCHES}
        for row in index.rows.iter_rows(named=True):
            assert row[UNUSED] == [name for name, over in counts.items() if row[name] in over]
        # An id is of one entity, as long as it has a record that had it; what was merged is not among the ids in use.
        now = index.entities()
        for row in index.rows.iter_rows(named=True):
            assert row[ENTITY_ID] not in row[PREVIOUS]
        survivors = {before[key] for key in before if key in now}
        for entity in survivors & set(now.values()):
            kept = {key for key, each in now.items() if each == entity}
            assert kept & {key for key, each in before.items() if each == entity}
        # Records of entities that share nothing with the change stay as they are.
        changed = {(row[0], row[1]) for row in found.changed.select(KEYS).iter_rows()}
        same = untouched.filter(
            ~pl.struct(KEYS).is_in(pl.Series([{"source": a, "id": b} for a, b in {*changed, *change}]).implode())
        )
        assert same.select(*KEYS, ENTITY_ID).rows() == [
            row for row in same.select(*KEYS, ENTITY_ID).rows() if now[row[0], row[1]] == row[2]
        ]
    # A full refresh changes no id.
    again = _resolve_all(index.rows.drop(UNUSED))
    assert (
        again.select(*KEYS, ENTITY_ID, PREVIOUS, UNUSED)
        .sort(KEYS)
        .equals(index.rows.select(*KEYS, ENTITY_ID, PREVIOUS, UNUSED).sort(KEYS))
    )
