"""Both kinds of entity refresh on frames: Spark's result equals the result of one process, row for row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.build.arrow import to_spark
from headrace.build.entities import clusters
from headrace.build.entities.alike import LEFT, PAIRS, RIGHT, WEIGHT
from headrace.build.entities.distributed import components
from headrace.build.entities.distributed.components import CHILD, PARENT
from headrace.build.entities.distributed.pairs import comparable_values
from headrace.build.entities.distributed.records import number_records
from headrace.build.entities.distributed.resolve import resolve_on_spark
from headrace.build.entities.ids import own_id
from headrace.build.entities.names import NODE
from headrace.build.entities.records import newest, normalised, resolve_records, rules_of
from headrace.build.entities.resolve import Rules, largest_entity
from headrace.errors import BuildError
from headrace.spark.checkpoints import Checkpoints
from headrace.spec.model.fuzzy import Block, Comparison, Fuzzy
from headrace.spec.model.layers import TableSettings
from headrace.spec.model.matching import ENTITY_ID, PREVIOUS, UNUSED, Match
from tests.build.layer_lake import START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEYS = ["source", "id"]
SETTINGS = TableSettings(
    kind="entities",
    keys=("source", "id"),
    sequence_by=("n",),
    oldest_by="day",
    except_columns=("country",),
    matches=(
        Match("email_found", "email", "email", max_records=3),
        Match("phone_found", "phone", "phone", region_column="country", max_records=2),
        Match("code_found", "code", "exact"),
    ),
)
KINDS: dict[str, DataType] = {
    **dict.fromkeys((*KEYS, "email", "phone", "code", "country", "name"), StringType()),
    "tags": ArrayType(StringType()),
    "n": IntegerType(),
    "day": TimestampType(),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in KINDS.items()])
KNOWN = StructType(
    [*(StructField(name, StringType()) for name in (*KEYS, ENTITY_ID)), StructField(PREVIOUS, ArrayType(StringType()))]
)
PAIR = StructType([StructField(CHILD, LongType()), StructField(PARENT, LongType()), StructField(WEIGHT, DoubleType())])
ROWS = pl.Schema(
    {**dict.fromkeys(KINDS, pl.String()), "tags": pl.List(pl.String), "n": pl.Int32(), "day": pl.Datetime("us", "UTC")}
)
FUZZY = Fuzzy((Comparison("name", "name"),), (Block(("source",)),), 7.0)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session that plans and compiles little: rows are few here, and rounds are many."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def shuffled_edges(random: Random) -> tuple[list[tuple[int, int]], int]:
    """Return edges of many graphs beside one another, some of them twice, and the number of their nodes."""
    graphs: list[list[tuple[int, int]]] = [
        [(node, node + 1) for node in range(60)],
        [(0, node) for node in range(1, 100)],
        [(node // 2, node) for node in range(1, 100)],
        [(node, (node + 1) % 30) for node in range(30)],
    ]
    for _ in range(40):
        nodes = random.randrange(2, 20)
        graphs.append([(random.randrange(nodes), random.randrange(nodes)) for _ in range(random.randrange(nodes * 2))])
    edges, first = [], 0
    for graph in graphs:
        edges += [(left + first, right + first) for left, right in graph]
        first += 1 + max((max(edge) for edge in graph), default=0)
    places = random.sample(range(first), first)  # so that the least node of a component is anywhere in it
    edges += random.sample(edges, 50)
    return [(places[left], places[right]) for left, right in edges], first


def test_components_on_spark_are_those_of_one_process(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    edges, nodes = shuffled_edges(Random(7))
    left, right = (pl.Series([edge[side] for edge in edges], dtype=pl.UInt32) for side in (0, 1))
    wanted = clusters.connected_components(left, right, nodes=nodes).to_list()
    pairs = [(max(edge), min(edge)) for edge in edges if edge[0] != edge[1]]
    frame = session.createDataFrame(pairs, f"{CHILD} LONG, {PARENT} LONG").coalesce(1)
    persisted = session.sparkContext._jsc.getPersistentRDDs().size()
    with Checkpoints() as checkpoints:
        rows = components.connected_components(frame, checkpoints=checkpoints).collect()
        parents = {row[CHILD]: row[PARENT] for row in rows}
        assert [parents.get(node, node) for node in range(nodes)] == wanted
        assert session.sparkContext._jsc.getPersistentRDDs().size() == persisted + 1, "only the last round is kept"
        monkeypatch.setattr(components, "MOST_ROUNDS", 2)
        with pytest.raises(BuildError, match="did not converge in 2 rounds"):
            components.connected_components(frame, checkpoints=checkpoints)
    assert session.sparkContext._jsc.getPersistentRDDs().size() == persisted


def random_rows(random: Random) -> list[dict[str, Any]]:
    """Return versions of records: small groups that share values, chains, a star, values that too many share, and nulls."""
    rows = []

    def add(group: str, number: int, **values: Any) -> None:
        row = dict.fromkeys(SCHEMA.names)
        row |= {"source": random.choice(("shop", "crm")), "id": f"{group}{number}", "country": random.choice(("US", None))}
        row |= {"day": random.choice((None, *(START + timedelta(days=day) for day in range(4))))}
        row |= {"tags": random.choice((None, [], ["b"], ["a", "c"])), "n": random.choice((None, 1, 2))}
        rows.append(row | values)

    for group in range(40):
        for number in range(random.randrange(1, 7)):
            add(
                f"g{group}-",
                number % 5,
                email=random.choice((None, "no address", f"P.{group}+x@gmail.com", f"p{group}@GMAIL.com", f"q{group}@b.org")),
                phone=random.choice((None, "x", f"+1 415 555 {2000 + group}", f"415 555 {2000 + group}")),
                name=random.choice((None, f"{group}a", f"{group}b", f"{group}c")),
            )
    order = random.sample(range(60), 60)
    for place, number in enumerate(order):
        add("chain", number, email=f"chain{place // 2}@b.org", code=f"chain{(place + 1) // 2}")
    for number in range(50):
        add("star", number, code="star", email="everybody@b.org")
    for number in range(51):
        add("over", number, code="over", name="same" if number < 3 else None)
    add("", 0, id=None, code="star")
    add("", 0, id=None, source=None, code="")
    return rows


def weigh_names(left: str, right: str) -> float:
    """Return a weight that depends on which of two names stands first."""
    return {0: 10.0, 1: 7.456, -1: 6.5}.get(ord(right[-1]) - ord(left[-1]), 0.0) if left[:-1] == right[:-1] else 0.0


def score(values: pl.DataFrame) -> pl.DataFrame:
    """Return what Splink would: the pairs of one source that weigh enough, with the first record on the left."""
    named = [row for row in values.select(NODE, "c0", "c1").iter_rows() if row[1]]
    pairs = [
        (node, other, weight)
        for place, (node, name, source) in enumerate(named)
        for other, second, its_source in named[place + 1 :]
        if source == its_source and (weight := weigh_names(name, second)) >= FUZZY.at_least
    ]
    return pl.DataFrame(pairs, schema={**PAIRS, LEFT: pl.Int64, RIGHT: pl.Int64}, orient="row")


def resolve_in_process(rows: pl.DataFrame, known: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    records = newest(normalised(SETTINGS, rows), keys=KEYS, sequence_by=["n"])
    return resolve_records(records, known, rules)


def resolve_both_ways(session: SparkSession, rows: pl.DataFrame, known: pl.DataFrame | None, *, alike: bool) -> pl.DataFrame:
    """Return the rows of one process, after comparing Spark's with them."""
    rules = rules_of(SETTINGS, score=None)
    local = replace(rules, fuzzy=FUZZY, score=lambda values: score(values).cast(PAIRS)) if alike else rules
    nothing = pl.DataFrame(schema=dict.fromkeys((*KEYS, ENTITY_ID), pl.String) | {PREVIOUS: pl.List(pl.String)})
    wanted = resolve_in_process(rows, nothing if known is None else known, local)

    def pairs_of(records: DataFrame) -> DataFrame:
        values = pl.DataFrame(comparable_values(records, FUZZY).toArrow()).sort(NODE)
        pairs = score(values).select(pl.col(RIGHT).alias(CHILD), pl.col(LEFT).alias(PARENT), WEIGHT)
        return to_spark(session, pairs, PAIR)

    ids = None if known is None else to_spark(session, known, KNOWN)
    with Checkpoints() as checkpoints:
        records = checkpoints.keep(number_records(to_spark(session, rows, SCHEMA), ids, SETTINGS))
        on_spark = resolve_on_spark(records, rules, pairs=pairs_of(records) if alike else None, checkpoints=checkpoints)
        assert on_spark.largest_entity == largest_entity(wanted)
        resolved = pl.DataFrame(on_spark.rows.toArrow()).select(wanted.columns).cast(wanted.schema)
    ours, theirs = (frame.sort(KEYS, nulls_last=True).rows(named=True) for frame in (wanted, resolved))
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
    return wanted


def test_records_on_spark_are_resolved_as_in_one_process(session: SparkSession) -> None:
    random = Random(11)
    every = pl.DataFrame(random_rows(random), schema=ROWS)
    first = resolve_both_ways(session, every, None, alike=False)
    assert {name for row in first[UNUSED] for name in row} == {"email_found", "phone_found", "code_found"}

    # Records go whose ids others keep, values change, and then the records come back: ids are kept, split, merged, made again.
    random.shuffle(rows := every.rows(named=True))
    changed = [
        row | {"email": f"p{random.randrange(40)}@gmail.com", "n": 3} for row in rows if row["id"] and row["id"][0] == "g"
    ]
    gone = pl.DataFrame([row for row in rows if random.random() < 0.6], schema=ROWS)
    second = resolve_in_process(gone, first, rules_of(SETTINGS, score=None))
    back = pl.DataFrame([*rows, *changed[::5]], schema=ROWS)
    third = resolve_both_ways(session, back, second.select(*KEYS, ENTITY_ID, PREVIOUS), alike=True)
    made_again = {own_id(key, again=1) for key in third.select(KEYS).iter_rows()}
    assert made_again & {*third[ENTITY_ID]}, "a record came back while its id was in use"
    assert third.filter(pl.col(PREVIOUS).list.len() > 0).height
    assert third["match_confidence"].n_unique() == 3
