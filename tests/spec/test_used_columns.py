"""The columns of its inputs that a query reads."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.spec import TableName
from headrace.spec.problems import Place
from headrace.spec.sql.queries import parse_query
from headrace.spec.sql.used_columns import used_columns
from tests.spec.random_queries import COLUMNS, SEEDS, Database, Lake, lakes, queries
from tests.spec.random_queries import KNOWN as TABLES

PLACE = Place("test.sql", "test")
LOOKUP = TableName("s", "l")
KNOWN = {TableName("s", "d"): ("id", "k", "n"), LOOKUP: ("k", "v", "W", "info")}

READ = [
    ("SELECT d.id, l.v FROM s.d LEFT JOIN s.l ON l.k = d.k", ("k", "v")),
    ("SELECT id, w + 1 AS v, v + 1 AS z FROM s.d JOIN s.l ON l.k = d.k", ("k", "v", "W")),
    ("SELECT d.id, count(*) AS c FROM s.d JOIN s.l ON l.k = d.k GROUP BY d.id", ("k",)),
    ("SELECT d.id, l.* EXCEPT (v) FROM s.d JOIN s.l ON l.k = d.k", ("k", "W", "info")),
    ("SELECT d.id, info.a.b FROM s.d JOIN s.l ON l.k = d.k", ("k", "info")),
    ("SELECT id, v FROM s.d JOIN s.l USING (k)", ("k", "v")),
    ("SELECT id FROM s.d WHERE EXISTS (SELECT 1 FROM s.l WHERE l.k = d.k AND w > 1)", ("k", "W")),
    ("SELECT id, (SELECT max(v) FROM s.l WHERE l.k = d.k) AS m FROM s.d", ("k", "v")),
    ("SELECT id, sum(n) OVER (PARTITION BY w ORDER BY v) AS s FROM s.d JOIN s.l ON l.k = d.k", ("k", "v", "W")),
    ("SELECT id, filter(info, v -> v > 1) AS f FROM s.d JOIN s.l ON l.k = d.k", ("k", "info")),
    ("SELECT id, x FROM s.d JOIN s.l ON l.k = d.k LATERAL VIEW explode(info) t AS x", ("k", "info")),
    ("WITH c AS (SELECT k, v AS a FROM s.l WHERE w > 0) SELECT id, a FROM s.d JOIN c ON c.k = d.k", ("k", "v", "W")),
    ("SELECT id + 1 AS next, next + 1 AS after FROM s.d JOIN s.l ON l.k = d.k", ("k",)),
    ("SELECT id, struct(l.*) AS all FROM s.d JOIN s.l ON l.k = d.k", None),
    ("SELECT id, struct(*) AS all FROM s.d JOIN s.l ON l.k = d.k", None),
    ("SELECT id, count(DISTINCT l.*) AS c FROM s.d JOIN s.l ON l.k = d.k GROUP BY id", None),
]


@pytest.mark.parametrize(("query", "read"), READ)
def test_used_columns_are_found_in_every_clause(query: str, read: tuple[str, ...] | None) -> None:
    assert used_columns(parse_query(query, place=PLACE), known=KNOWN).get(LOOKUP) == read


def test_used_columns_are_empty_for_an_unknown_input() -> None:
    parsed = parse_query("SELECT d.id, l.v FROM s.d LEFT JOIN s.l ON l.k = d.k", place=PLACE)
    assert used_columns(parsed, known={LOOKUP: KNOWN[LOOKUP]}) == {}


@pytest.fixture(scope="module")
def database() -> Database:
    return Database()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(query=queries(), some_lakes=st.lists(lakes(), min_size=2, max_size=2), seed=SEEDS)
def test_unused_columns_do_not_affect_the_result(database: Database, query: str, some_lakes: list[Lake], seed: int) -> None:
    used = used_columns(parse_query(query, place=PLACE), known=TABLES)
    chance = random.Random(seed)
    for lake in some_lakes:
        changed = {
            table: [
                tuple(
                    value if table not in used or name in used[table] else chance.choice([None, *(r[i] for r in rows)])
                    for i, (name, value) in enumerate(zip(COLUMNS, row, strict=True))
                )
                for row in rows
            ]
            for table, rows in lake.items()
        }
        assert database.run(query, changed) == database.run(query, lake), (used, lake, changed)
