"""Edges, clusters and stable ids on frames: results do not depend on the order of records, and ids are stable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.build.entities.alike import PAIRS, block_columns
from headrace.build.entities.clusters import connected_components
from headrace.build.entities.index import FILE_NUMBER, ROW_NUMBER, RecordIndex, hashed
from headrace.build.entities.names import NODE
from headrace.build.entities.normalise import normalise, phone_number
from headrace.build.entities.resolve import Rules, resolve, shared_too_widely
from headrace.build.entities.touched import Resolved, resolve_change
from headrace.spec.model.fuzzy import Block, Comparison, Fuzzy
from headrace.spec.model.matching import CONFIDENCE, ENTITY_ID, PREVIOUS, UNUSED, EmailRules, Match

MATCHES = (Match("email", "email", "exact", max_records=3), Match("phone", "phone", "exact", max_records=2))
RULES = Rules(("source", "id"), "age", MATCHES)
FUZZY = Fuzzy((Comparison("name", "name"),), (Block(("place",)), Block(("name", "source"))), 7.0)
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "source": pl.String,
    "id": pl.String,
    "age": pl.Int64,
    "email": pl.String,
    "phone": pl.String,
    "name": pl.String,
    "place": pl.String,
    ENTITY_ID: pl.String,
    PREVIOUS: pl.List(pl.String),
    UNUSED: pl.List(pl.String),
    CONFIDENCE: pl.Decimal(5, 2),
}
KEYS = list(RULES.keys)
ADDED = [ENTITY_ID, PREVIOUS, UNUSED, CONFIDENCE]
Key = tuple[str, str]
Values = tuple[int | str | None, ...]
"""A record's age, email, phone, and where a test needs them, name and place."""

keys = st.tuples(st.sampled_from("ab"), st.sampled_from("123456"))
values = st.tuples(
    st.integers(0, 5),
    st.sampled_from([None, *"uvwx"]),
    st.sampled_from([None, *"pqrs"]),
    st.sampled_from([None, *"aBcd"]),
    st.sampled_from([None, *"xyz"]),
)
changes = st.dictionaries(keys, st.none() | values, min_size=1, max_size=4)


class Index:
    """A table of entities as its builds see it, one change after the other."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.rows = pl.DataFrame(schema=SCHEMA)
        self.gone = self.rows.clear()
        self.largest: int | None = None

    def index(self) -> RecordIndex:
        """Return the records, and the removed ones that are still in the files."""
        half = self.rows.height // 2
        files = (self.rows.head(half), self.rows.slice(half), self.gone)
        deleted = pl.select(
            pl.repeat(len(files) - 1, self.gone.height, dtype=pl.UInt32).alias(FILE_NUMBER),
            pl.int_range(self.gone.height, dtype=pl.Int64).alias(ROW_NUMBER),
        )
        return RecordIndex(tuple(hashed(file, self.rules) for file in files), deleted)

    def apply(self, change: dict[Key, Values | None]) -> Resolved:
        touched = pl.DataFrame(list(change), schema=KEYS, orient="row")
        new = _frame({key: value for key, value in change.items() if value is not None})
        index = self.index()
        resolved = resolve_change(index, new, index.with_keys(touched), self.rules, largest=self.largest)
        came = new.drop(*ADDED).join(resolved.new, on=KEYS)
        rest = self.rows.join(touched, on=KEYS, how="anti")
        stays = rest.join(resolved.changed, on=KEYS, how="anti")
        moved = rest.drop(*ADDED).join(resolved.changed, on=KEYS)
        self.gone = pl.concat([self.gone, self.rows.join(stays, on=KEYS, how="anti")])
        self.rows = pl.concat([rows.select(*SCHEMA) for rows in (stays, moved, came)])
        self.largest = max(Counter(self.rows[ENTITY_ID]).values(), default=0)
        assert resolved.largest_entity == self.largest
        return resolved

    def entities(self) -> dict[Key, str]:
        return {(source, record_id): entity for source, record_id, entity in self.rows.select(*KEYS, ENTITY_ID).iter_rows()}


def _frame(records: dict[Key, Values]) -> pl.DataFrame:
    rows = [(*key, *(*value, None, None)[:5], None, None, None, None) for key, value in records.items()]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _weight(left: str | None, right: str | None) -> float:
    """Return how alike two names are, which depends on which of the two stands first."""
    if left is None or right is None:
        return 0.0
    distance = ord(right.lower()) - ord(left.lower())
    return {0: 10.0, 1: 7.5, -1: 6.5}.get(distance, 0.0)


def _score(records: pl.DataFrame) -> pl.DataFrame:
    """Return what Splink would: weights of pairs that share a block, with the first record on the left."""
    scored = []
    rows = list(records.rows(named=True))
    for place, left in enumerate(rows):
        for right in rows[place + 1 :]:
            blocks = [
                [left[name] == right[name] is not None for name in block_columns(block, FUZZY)] for block in FUZZY.block_on
            ]
            weight = _weight(left["c0"], right["c0"])
            if any(all(block) for block in blocks) and weight >= FUZZY.at_least:
                scored.append((left[NODE], right[NODE], weight))
    return pl.DataFrame(scored, schema=PAIRS, orient="row")


FUZZY_RULES = replace(RULES, fuzzy=FUZZY, score=_score)


def _resolve_all(records: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    return resolve(records, rules, unused={match.column: shared_too_widely(records, match) for match in rules.matches})


def _clusters(rows: pl.DataFrame) -> set[frozenset[Key]]:
    grouped = rows.group_by(ENTITY_ID).agg(pl.struct(KEYS).alias("keys"))
    return {frozenset((key["source"], key["id"]) for key in row) for row in grouped["keys"].to_list()}


def _pairs_by_hand(records: dict[Key, Values], rules: Rules) -> list[tuple[Key, Key, float]]:
    """Return the pairs that make records one, in the plainest way; what they share weighs 100."""
    pairs = []
    for index, match in enumerate(MATCHES, start=1):
        for value in {record[index] for record in records.values()} - {None}:
            sharing = [key for key, record in records.items() if record[index] == value]
            if len(sharing) <= match.max_records:
                pairs += [(left, right, 100.0) for left in sharing for right in sharing if left < right]
    for left, right in combinations(sorted(records), 2) if rules.fuzzy else ():
        (one, here), (other, there) = records[left][3:], records[right][3:]
        weight = _weight(str(one) if one else None, str(other) if other else None)
        # Records of one source and one name share a block, too; their weight is 10.
        if (here == there is not None or (left[0] == right[0] and weight == 10.0)) and weight >= FUZZY.at_least:
            pairs.append((left, right, weight))
    return pairs


def _by_hand(records: dict[Key, Values], rules: Rules) -> set[frozenset[Key]]:
    """Return the clusters, found in the plainest way."""
    together = {key: {key} for key in records}
    for left, right, _ in _pairs_by_hand(records, rules):
        merged = together[left] | together[right]
        for member in merged:
            together[member] = merged
    return {frozenset(members) for members in together.values()}


def _sure_by_hand(records: dict[Key, Values], rules: Rules) -> dict[Key, float]:
    pairs = _pairs_by_hand(records, rules)
    return {key: max((weight for *both, weight in pairs if key in both), default=100.0) for key in records}


@given(history=st.lists(changes, min_size=1, max_size=12))
@pytest.mark.parametrize("rules", [RULES, FUZZY_RULES], ids=["exact", "fuzzy"])
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_changes_one_by_one_end_as_all_at_once(rules: Rules, history: list[dict[Key, Values | None]]) -> None:
    index, records = Index(rules), dict[Key, Values]()
    for change in history:
        before = index.entities()
        resolved = index.apply(change)
        records.update({key: value for key, value in change.items() if value is not None})
        for key in (key for key, value in change.items() if value is None):
            records.pop(key, None)
        # The same are together as if all had come at once, and by the plainest way to find it.
        assert _clusters(index.rows) == _clusters(_resolve_all(_frame(records), rules)) == _by_hand(records, rules)
        sure = {
            (source, record_id): float(value) for source, record_id, value in index.rows.select(*KEYS, CONFIDENCE).iter_rows()
        }
        assert sure == _sure_by_hand(records, rules)
        # What too many share is known of every record that has it.
        counts = {match.column: set(shared_too_widely(index.rows, match)) for match in MATCHES}
        for row in index.rows.iter_rows(named=True):
            assert row[UNUSED] == [name for name, over in counts.items() if row[name] in over]
        # An id is of one entity, as long as it has a record that had it; what was merged is not among the ids in use.
        now = index.entities()
        for row in index.rows.iter_rows(named=True):
            assert row[ENTITY_ID] not in row[PREVIOUS]
        survivors = {before[key] for key in before if key in now}
        for entity in survivors & set(now.values()):
            keys = {key for key, owner in now.items() if owner == entity}
            assert keys & {key for key, owner in before.items() if owner == entity}
        # What the change does not name stays as it is.
        named = {*change, *resolved.changed.select(KEYS).iter_rows()}
        assert {key: entity for key, entity in before.items() if key not in named}.items() <= now.items()
    # A full refresh changes no id.
    again = _resolve_all(index.rows.drop(UNUSED, CONFIDENCE), rules)
    assert again.select(*KEYS, *ADDED).sort(KEYS).equals(index.rows.select(*KEYS, *ADDED).sort(KEYS))


def test_value_that_too_many_share_is_not_used_until_fewer_do() -> None:
    index = Index()
    index.apply({("a", "1"): (1, None, "p"), ("a", "2"): (2, None, "p")})
    assert len(_clusters(index.rows)) == 1
    resolved = index.apply({("b", "1"): (3, None, "p")})
    assert len(_clusters(index.rows)) == 3
    assert resolved.changed.height == 2, "all its records are touched once"
    resolved = index.apply({("b", "2"): (3, "u", "p")})
    assert resolved.changed.is_empty(), "and no longer while it stays so"
    assert index.rows.filter(pl.col(UNUSED).list.contains("phone")).height == 4
    index.apply({("b", "1"): None, ("b", "2"): None})
    assert len(_clusters(index.rows)) == 1
    assert index.rows[UNUSED].list.len().sum() == 0


def test_merged_entities_keep_the_older_id() -> None:
    index = Index()
    index.apply({("a", "1"): (5, "u", None), ("a", "2"): (2, None, "p")})
    younger, older = (index.entities()["a", number] for number in "12")
    index.apply({("b", "1"): (0, "u", "p")})
    assert set(index.entities().values()) == {older}, "the record that joins them is older than both, and gives no id"
    previous = {row[1]: row[2] for row in index.rows.filter(source="a").select(*KEYS, PREVIOUS).iter_rows()}
    assert previous == {"1": [younger], "2": []}
    index.apply({("b", "1"): None})
    assert (index.entities()["a", "1"], index.entities()["a", "2"]) == (younger, older)
    assert index.rows[PREVIOUS].list.len().sum() == 0, "an id that is in use again was not merged"


def test_split_entity_keeps_the_id_with_its_anchor() -> None:
    index = Index()
    index.apply({("a", "1"): (1, "u", None), ("a", "2"): (2, "u", "p"), ("a", "3"): (3, None, "p")})
    (entity,) = set(index.entities().values())
    index.apply({("b", "1"): (0, None, "p")})
    assert index.entities()["a", "1"] == entity
    assert len(set(index.entities().values())) == 4 - 1


def test_returning_record_gets_an_unused_id() -> None:
    index = Index()
    index.apply({("a", "1"): (1, "u", None), ("a", "2"): (2, "u", None)})
    entity = index.entities()["a", "1"]
    index.apply({("a", "1"): None})
    assert index.entities() == {("a", "2"): entity}
    index.apply({("a", "1"): (1, "v", None)})
    assert index.entities()["a", "2"] == entity != index.entities()["a", "1"]


def test_chain_of_any_length_is_one_component() -> None:
    nodes = pl.int_range(10_000, eager=True).shuffle(seed=1)
    components = connected_components(nodes.head(-1), nodes.tail(-1), nodes=nodes.len() + 1)
    assert components.to_list() == [0] * nodes.len() + [nodes.len()]


@pytest.mark.parametrize(
    ("written", "rules", "wanted"),
    [
        (" Ann.Lee+news@GoogleMail.com ", EmailRules(), "annlee@gmail.com"),
        ("Ann.Lee+news@Example.com", EmailRules(), "ann.lee@example.com"),
        ("Ann.Lee+news@GMAIL.com", EmailRules(dots=False), "ann.lee@gmail.com"),
        ("Ann.Lee+news@Example.com", EmailRules(plus_tags=False), "ann.lee+news@example.com"),
        ("Ann.Lee+news@Example.com", EmailRules(case=False), "Ann.Lee@example.com"),
        ("+a@b.org", EmailRules(), "+a@b.org"),
        *(
            (email, EmailRules(), None)
            for email in (None, "", "  ", "ann", "ann@", "@b.org", "ann@b", "a b@c.org", "a@b@c.org", "a@b..c")
        ),
        (f"{'a' * 250}@b.org", EmailRules(), None),
    ],
)
def test_addresses_are_normalised(written: str | None, rules: EmailRules, wanted: str | None) -> None:
    normalised = normalise(
        pl.DataFrame({"email": [written]}, schema={"email": pl.String}), [Match("n", "email", "email", email=rules)]
    )
    assert normalised["n"].to_list() == [wanted]


@pytest.mark.parametrize(
    ("written", "region", "wanted"),
    [
        ("(415) 555-2671", "US", "+14155552671"),
        ("+1 415 555 2671", None, "+14155552671"),
        ("0171 1234567", "DE", "+491711234567"),
        ("+1 415 555 2671 ext. 12", None, "+14155552671;ext=12"),
        ("415 555 2671", None, None),
        ("415 555 2671", "Atlantis", None),
        *((phone, "US", None) for phone in ("", "12", "call me", "+1 415 555 2671 999999")),
    ],
)
def test_phone_numbers_are_normalised(written: str, region: str | None, wanted: str | None) -> None:
    assert phone_number(written, region) == wanted


def test_number_takes_its_country_from_its_record() -> None:
    rows = pl.DataFrame({"phone": ["0171 1234567", "0171 1234567", None, "0171 1234567"], "country": ["DE", " de", "DE", None]})
    (match,) = (Match("n", "phone", "phone", region_column="country"),)
    assert normalise(rows, [match])["n"].to_list() == ["+491711234567", "+491711234567", None, None]
