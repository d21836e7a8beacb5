"""Access paths: the columns by which a query looks up its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from headrace.spec import TableName, load_pipeline
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.problems import Place
from headrace.spec.sql.access_paths import AccessPaths, access_paths, key_paths
from headrace.spec.sql.lineage import trace_lineage
from headrace.spec.sql.queries import ParsedQuery, parse_query

PLACE = Place("test.sql", "test")
KNOWN = {
    TableName("s", "d"): ("id", "k", "k2", "n", "at", "info"),
    TableName("s", "e"): ("id", "k", "j"),
    TableName("s", "l"): ("k", "k2", "v", "at", "m_id"),
    TableName("s", "m"): ("id", "v", "k"),
    TableName("deep.s", "o"): ("Key", "v"),
}
PIPELINES = ("commerce", "lineage", "payments", "storefront", "weather")


def describe(paths: AccessPaths, table: str) -> list[str] | None:
    """Return the paths to a table as `columns < source.columns`."""
    lookup_paths = paths.lookups[TableName.parse(table)]
    if lookup_paths is None:
        return None
    return sorted(f"{' '.join(path.columns)} < {path.source} {' '.join(path.source_columns)}" for path in lookup_paths)


def read(query: str) -> AccessPaths:
    return access_paths(parse_query(query, place=PLACE), known=KNOWN)


L_BY_K = ["k < s.d k"]
FOLLOWED = [
    ("left join", "SELECT d.id, l.v FROM s.d LEFT JOIN s.l ON l.k = d.k", L_BY_K),
    ("inner join, sides swapped", "SELECT d.id, l.v FROM s.d JOIN s.l ON d.k = l.k", L_BY_K),
    ("semi join", "SELECT d.id FROM s.d LEFT SEMI JOIN s.l ON l.k = d.k", L_BY_K),
    ("anti join", "SELECT d.id FROM s.d LEFT ANTI JOIN s.l ON l.k = d.k", L_BY_K),
    ("two columns", "SELECT * FROM s.d LEFT JOIN s.l ON l.k = d.k AND l.k2 = d.k2", ["k k2 < s.d k k2"]),
    ("a range beside", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k AND l.at <= d.at", L_BY_K),
    ("a constant beside", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.v = 1 AND l.k = d.k", L_BY_K),
    ("OR beside", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k AND (l.v = 1 OR l.v = d.n)", L_BY_K),
    ("an expression beside", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k AND l.k2 = upper(d.k2)", L_BY_K),
    ("null-safe beside", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k AND l.k2 <=> d.k2", L_BY_K),
    ("parentheses", "SELECT d.id FROM s.d LEFT JOIN s.l ON ((l.k) = (d.k))", L_BY_K),
    ("USING", "SELECT k, v FROM s.d LEFT JOIN s.l USING (k)", L_BY_K),
    ("USING two columns", "SELECT k, v FROM s.d JOIN s.l USING (k, k2)", ["k k2 < s.d k k2"]),
    ("NATURAL", "SELECT id, v FROM s.d NATURAL JOIN s.l", ["k k2 at < s.d k k2 at"]),
    ("unqualified columns", "SELECT id FROM s.e LEFT JOIN s.l ON m_id = j", ["m_id < s.e j"]),
    ("aliases", "SELECT x.id FROM s.d AS x LEFT JOIN s.l AS y ON y.k = x.k", L_BY_K),
    ("another case", "SELECT X.id FROM s.d AS x LEFT JOIN s.l AS Y ON y.K = X.k", L_BY_K),
    ("quoted names", "SELECT `x`.id FROM `s`.`d` AS `x` LEFT JOIN s.`l` AS y ON `y`.`k` = x.`k`", L_BY_K),
    ("comma and WHERE", "SELECT d.id FROM s.d, s.l WHERE l.k = d.k", L_BY_K),
    ("cross join and WHERE", "SELECT d.id FROM s.d CROSS JOIN s.l WHERE d.k = l.k AND l.v > 1", L_BY_K),
    ("a column beats an alias in WHERE", "SELECT l.k2 AS n FROM s.d, s.l WHERE n = l.k", ["k < s.d n"]),
    ("driver in a CTE", "WITH c AS (SELECT id, k AS a FROM s.d WHERE n > 1) SELECT c.id FROM c JOIN s.l ON l.k = c.a", L_BY_K),
    (
        "driver in two CTEs",
        "WITH b AS (SELECT k AS a FROM s.d), c AS (SELECT a AS z FROM b) SELECT z FROM c JOIN s.l ON k = z",
        L_BY_K,
    ),
    ("CTE with column names", "WITH c(a, b) AS (SELECT id, k FROM s.d) SELECT a FROM c JOIN s.l ON l.k = c.b", L_BY_K),
    ("driver in a star", "SELECT c.id FROM (SELECT *, 1 AS one FROM s.d) AS c JOIN s.l ON l.k = c.k", L_BY_K),
    (
        "driver grouped",
        "WITH c AS (SELECT k, count(*) AS n FROM s.d GROUP BY k) SELECT c.n FROM c JOIN s.l ON l.k = c.k",
        L_BY_K,
    ),
    ("driver limited", "SELECT c.id FROM (SELECT * FROM s.d LIMIT 3) AS c JOIN s.l ON l.k = c.k", L_BY_K),
    (
        "driver's newest value",
        "SELECT c.a FROM (SELECT id, max_by(k, at) AS a FROM s.d GROUP BY id) AS c JOIN s.l ON l.k = c.a",
        L_BY_K,
    ),
    (
        "driver's filtered maximum",
        "SELECT c.a FROM (SELECT id, max(k) FILTER (WHERE n > 1) AS a FROM s.d GROUP BY id) AS c JOIN s.l ON l.k = c.a",
        L_BY_K,
    ),
    (
        "the first of two columns",
        "SELECT c.a FROM (SELECT coalesce(k, k2) AS a FROM s.d) AS c JOIN s.l ON l.k = c.a",
        ["k < s.d k", "k < s.d k2"],
    ),
    (
        "one of two columns, or null",
        "SELECT c.a FROM (SELECT CASE WHEN n > 1 THEN k WHEN n > 0 THEN k2 END AS a FROM s.d) AS c JOIN s.l ON l.k = c.a",
        ["k < s.d k", "k < s.d k2"],
    ),
    (
        "driver in branches",
        "WITH c AS (SELECT id, k FROM s.d UNION ALL SELECT id, j FROM s.e) SELECT c.id FROM c JOIN s.l ON l.k = c.k",
        ["k < s.d k", "k < s.e j"],
    ),
    (
        "a branch without values",
        "WITH c AS (SELECT id, k FROM s.d UNION ALL SELECT id, CAST(NULL AS INT) FROM s.e) SELECT v FROM c JOIN s.l USING (k)",
        L_BY_K,
    ),
    (
        "joined in every branch",
        "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k UNION ALL SELECT e.id FROM s.e JOIN s.l ON l.k2 = e.j",
        ["k < s.d k", "k2 < s.e j"],
    ),
    (
        "joined twice",
        "SELECT d.id FROM s.d LEFT JOIN s.l AS a ON a.k = d.k LEFT JOIN s.l AS b ON b.k = d.k2",
        ["k < s.d k", "k < s.d k2"],
    ),
    (
        "lookup in a CTE",
        "WITH c AS (SELECT k AS a, v FROM s.l WHERE v > 0) SELECT d.id FROM s.d LEFT JOIN c ON c.a = d.k",
        L_BY_K,
    ),
    (
        "lookup grouped",
        "WITH c AS (SELECT k, sum(v) AS v FROM s.l GROUP BY k) SELECT c.v FROM s.d LEFT JOIN c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "lookup grouped by position",
        "SELECT c.v FROM s.d JOIN (SELECT k, sum(v) AS v FROM s.l GROUP BY 1) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "lookup grouped by alias",
        "SELECT c.v FROM s.d JOIN (SELECT k AS a, sum(v) AS v FROM s.l GROUP BY a) AS c ON c.a = d.k",
        L_BY_K,
    ),
    (
        "lookup grouped by all",
        "SELECT c.v FROM s.d JOIN (SELECT k, sum(v) AS v FROM s.l GROUP BY ALL) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "lookup grouped by more",
        "SELECT c.v FROM s.d JOIN (SELECT k, k2, sum(v) AS v FROM s.l GROUP BY k, k2 HAVING sum(v) > 1) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "one of two is a group key",
        "SELECT c.v FROM s.d JOIN (SELECT k, max(k2) AS k2, max(v) AS v FROM s.l GROUP BY k) AS c ON c.k = d.k AND c.k2 = d.k2",
        L_BY_K,
    ),
    ("lookup distinct", "SELECT d.id FROM s.d JOIN (SELECT DISTINCT k, v FROM s.l) AS c ON c.k = d.k", L_BY_K),
    (
        "lookup with a window",
        "SELECT c.r FROM s.d JOIN (SELECT k, sum(v) OVER (PARTITION BY k, k2 ORDER BY at) AS r FROM s.l) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "lookup with a named window",
        "SELECT c.r FROM s.d JOIN (SELECT k, sum(v) OVER w AS r FROM s.l WINDOW w AS (PARTITION BY k)) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "the newest of a lookup",
        "SELECT 1 FROM s.d JOIN (SELECT k FROM s.l QUALIFY rank() OVER (PARTITION BY l.k ORDER BY at) = 1) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "the newest of a lookup, by a filter",
        """SELECT c.v FROM s.d JOIN (
            SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY at) AS r FROM s.l) WHERE r = 1
        ) AS c ON c.k = d.k""",
        L_BY_K,
    ),
    (
        "lookup in branches",
        "SELECT c.k FROM s.d JOIN (SELECT k FROM s.l UNION ALL SELECT k2 FROM s.l) AS c ON c.k = d.k",
        ["k < s.d k", "k2 < s.d k"],
    ),
    (
        "lookup in a distinct union",
        "SELECT c.k FROM s.d JOIN (SELECT k FROM s.l UNION SELECT k FROM s.l) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "lookup exploded",
        "SELECT c.w FROM s.d JOIN (SELECT l.k, t.w FROM s.l LATERAL VIEW explode(split(l.v, ',')) t AS w) AS c ON c.k = d.k",
        L_BY_K,
    ),
    ("lookup exploded in its list", "SELECT c.w FROM s.d JOIN (SELECT k, explode(v) AS w FROM s.l) AS c ON c.k = d.k", L_BY_K),
    ("lookup ordered", "SELECT c.k FROM s.d JOIN (SELECT k FROM s.l ORDER BY k) AS c ON c.k = d.k", L_BY_K),
    (
        "lookup joined below",
        "SELECT c.k FROM s.d JOIN (SELECT l.k FROM s.m LEFT JOIN s.l ON l.m_id = m.id) AS c ON c.k = d.k",
        L_BY_K,
    ),
    (
        "a result that is cut, mixed and limited",
        "SELECT count(*) AS n, max(l.v) AS v FROM s.d LEFT JOIN s.l ON l.k = d.k ORDER BY n LIMIT 1",
        L_BY_K,
    ),
    ("a window over the result", "SELECT sum(l.v) OVER () AS n FROM s.d LEFT JOIN s.l ON l.k = d.k", L_BY_K),
    ("EXISTS", "SELECT d.id FROM s.d WHERE EXISTS (SELECT 1 FROM s.l WHERE l.k = d.k AND l.v > d.n)", L_BY_K),
    ("NOT EXISTS", "SELECT d.id FROM s.d WHERE NOT EXISTS (SELECT 1 FROM s.l WHERE l.k = d.k)", L_BY_K),
    ("IN", "SELECT d.id FROM s.d WHERE d.n > 1 AND d.k IN (SELECT l.k FROM s.l WHERE l.v > 1)", L_BY_K),
    ("IN with two columns", "SELECT d.id FROM s.d WHERE (d.k, d.k2) IN (SELECT l.k, l.k2 FROM s.l)", ["k k2 < s.d k k2"]),
    ("NOT IN, correlated", "SELECT d.id FROM s.d WHERE d.n NOT IN (SELECT l.v FROM s.l WHERE l.k = d.k)", L_BY_K),
    ("a correlated scalar", "SELECT d.id, (SELECT max(l.v) FROM s.l WHERE l.k = d.k) AS v FROM s.d", L_BY_K),
    (
        "two sources, the driver first",
        "SELECT d.id FROM s.d JOIN s.m ON m.id = d.n JOIN s.l ON l.m_id = m.v AND l.k = d.k",
        L_BY_K,
    ),
    (
        "equal to a lookup's column that is the driver's",
        "SELECT d.id FROM s.d LEFT JOIN s.m ON m.k = d.k LEFT JOIN s.l ON l.k = m.k AND l.k2 = d.k2",
        ["k k2 < s.d k k2"],
    ),
    ("a chain", "SELECT d.id FROM s.d LEFT JOIN s.m ON m.id = d.n LEFT JOIN s.l ON l.m_id = m.v", ["m_id < s.m v"]),
    (
        "a chain in a CTE",
        "WITH c AS (SELECT m.id, l.v FROM s.m JOIN s.l ON l.k = m.k) SELECT c.v FROM s.d LEFT JOIN c ON c.id = d.n",
        ["k < s.m k"],
    ),
    ("after a full join", "SELECT d.id FROM s.d FULL JOIN s.m ON m.id = d.n LEFT JOIN s.l ON l.k = d.k", L_BY_K),
    ("a right join's driver", "SELECT d.id FROM s.d JOIN s.l ON l.k = d.k RIGHT JOIN s.m ON m.id = d.n", L_BY_K),
]

WHOLE = [
    ("cross join", "SELECT d.id FROM s.d CROSS JOIN s.l", "a cross join has no condition"),
    ("comma", "SELECT d.id FROM s.d, s.l", "a cross join"),
    ("full join", "SELECT d.id FROM s.d FULL JOIN s.l ON l.k = d.k", "keeps unmatched rows"),
    ("right join", "SELECT l.k FROM s.d RIGHT JOIN s.l ON l.k = d.k", "keeps unmatched rows"),
    ("OR", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k OR l.k2 = d.k", "the join condition contains OR"),
    ("null-safe", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k <=> d.k", "<=> matches nulls"),
    ("a range", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.at <= d.at", "has no equality"),
    ("NOT equal", "SELECT d.id FROM s.d LEFT JOIN s.l ON NOT (l.k = d.k)", "has no equality"),
    (
        "the driver's side is an expression",
        "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = upper(trim(d.k))",
        "compares expressions",
    ),
    ("the lookup's side is an expression", "SELECT d.id FROM s.d LEFT JOIN s.l ON upper(l.k) = d.k", "compares expressions"),
    ("a cast", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = CAST(d.n AS STRING)", "compares expressions"),
    ("a field of a struct", "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.info.k", "compares expressions"),
    (
        "an expression in a CTE",
        "WITH c AS (\nSELECT\nupper(k) AS k FROM s.d) SELECT c.k FROM c LEFT JOIN s.l ON l.k = c.k",
        'line 3: the join column "k" is an expression: UPPER(d.k)',
    ),
    (
        "an expression in one branch",
        "WITH c AS (SELECT id, k FROM s.d UNION ALL SELECT id, upper(j) FROM s.e) SELECT c.id FROM c JOIN s.l ON l.k = c.k",
        "don't come from a single table",
    ),
    ("LIMIT", "SELECT d.id FROM s.d LEFT JOIN (SELECT k FROM s.l ORDER BY at LIMIT 9) AS c ON c.k = d.k", "LIMIT selects"),
    ("LIMIT of parentheses", "WITH c AS ((SELECT k FROM s.l) LIMIT 9) SELECT d.id FROM s.d JOIN c ON c.k = d.k", "LIMIT"),
    (
        "LIMIT of a union",
        "WITH c AS (SELECT k FROM s.l UNION ALL SELECT k FROM s.l LIMIT 9) SELECT d.id FROM s.d JOIN c ON c.k = d.k",
        "LIMIT",
    ),
    ("a sample", "SELECT d.id FROM s.d JOIN s.l TABLESAMPLE (10 PERCENT) AS c ON c.k = d.k", "can't be analysed"),
    ("EXCEPT", "WITH c AS (SELECT k FROM s.l EXCEPT SELECT id FROM s.m) SELECT d.id FROM s.d JOIN c ON c.k = d.k", "EXCEPT"),
    (
        "grouped by another column",
        "SELECT d.id FROM s.d JOIN (SELECT max(k) AS k FROM s.l GROUP BY v) AS c ON c.k = d.k",
        "expression",
    ),
    ("not grouped", "SELECT d.id FROM s.d JOIN (SELECT max(k) AS k FROM s.l) AS c ON c.k = d.k", "is an expression"),
    (
        "grouped by an expression",
        "SELECT d.id FROM s.d JOIN (SELECT upper(k) AS k FROM s.l GROUP BY upper(k)) AS c ON c.k = d.k",
        "expression",
    ),
    (
        "rollup",
        "SELECT d.id FROM s.d JOIN (SELECT k, count(*) FROM s.l GROUP BY ROLLUP(k)) AS c ON c.k = d.k",
        "grouped in several ways",
    ),
    (
        "grouping sets",
        "SELECT d.id FROM s.d JOIN (SELECT k, count(*) FROM s.l GROUP BY GROUPING SETS ((k), ())) AS c ON c.k = d.k",
        "grouped in several ways",
    ),
    (
        "a window over all",
        "SELECT d.id FROM s.d JOIN (SELECT k, sum(v) OVER (ORDER BY at) AS r FROM s.l) AS c ON c.k = d.k",
        "PARTITION BY",
    ),
    (
        "a window by another column",
        "SELECT d.id FROM s.d JOIN (SELECT k, sum(v) OVER w AS r FROM s.l WINDOW w AS (PARTITION BY k2)) AS c ON c.k = d.k",
        "PARTITION BY",
    ),
    (
        "one window of two",
        "SELECT 1 FROM s.d JOIN (SELECT k, max(v) OVER (PARTITION BY k), min(at) OVER (PARTITION BY k2) FROM s.l) c USING (k)",
        "PARTITION BY",
    ),
    (
        "QUALIFY by another column",
        "SELECT d.id FROM s.d JOIN (SELECT k FROM s.l QUALIFY rank() OVER (PARTITION BY k2 ORDER BY at) = 1) AS c ON c.k = d.k",
        "PARTITION BY",
    ),
    (
        "numbered rows",
        "SELECT d.id FROM s.d JOIN (SELECT k, monotonically_increasing_id() AS i FROM s.l) AS c ON c.k = d.k",
        "depends on more",
    ),
    (
        "a scalar",
        "SELECT d.id, (SELECT max(l.v) FROM s.l) AS v FROM s.d",
        "no equality of plain columns correlates the subquery",
    ),
    (
        "EXISTS without an equality",
        "SELECT d.id FROM s.d WHERE EXISTS (SELECT 1 FROM s.l WHERE l.at > d.at)",
        "no equality of plain columns correlates the subquery",
    ),
    (
        "NOT IN",
        "SELECT d.id FROM s.d WHERE d.k NOT IN (SELECT l.k FROM s.l)",
        "no equality of plain columns correlates the subquery",
    ),
    (
        "IN beside OR",
        "SELECT d.id FROM s.d WHERE d.n = 1 OR d.k IN (SELECT l.k FROM s.l)",
        "no equality of plain columns correlates the subquery",
    ),
    (
        "IN as a value",
        "SELECT d.id, d.k IN (SELECT l.k FROM s.l) AS known FROM s.d",
        "no equality of plain columns correlates the subquery",
    ),
    (
        "IN of an expression",
        "SELECT d.id FROM s.d WHERE upper(d.k) IN (SELECT l.k FROM s.l)",
        "no equality of plain columns correlates the subquery",
    ),
    (
        "joined to itself",
        "SELECT d.id FROM s.d CROSS JOIN s.l AS a JOIN s.l AS b ON b.k = a.k2",
        "which is only reachable from it",
    ),
    (
        "once followed, once not",
        "SELECT d.id FROM s.d LEFT JOIN s.l AS a ON a.k = d.k LEFT JOIN s.l AS b ON b.at < d.at",
        "has no equality",
    ),
    (
        "one branch of two",
        "SELECT d.id FROM s.d LEFT JOIN s.l ON l.k = d.k UNION ALL SELECT e.id FROM s.e CROSS JOIN s.l",
        "a cross join",
    ),
    (
        "a lookup kept by a full join below",
        "SELECT c.k FROM s.d JOIN (SELECT m.id, l.k FROM s.m FULL JOIN s.l ON l.m_id = m.id) AS c ON c.k = d.k",
        "keeps unmatched rows",
    ),
    (
        "a right join's lookup after WHERE",
        "SELECT d.id FROM s.d RIGHT JOIN s.l ON l.v = d.n WHERE l.k = d.k",
        "keeps unmatched rows",
    ),
    (
        "kept by a left join that finds nothing",
        "SELECT c.v FROM s.d CROSS JOIN (SELECT l.v FROM s.l LEFT JOIN s.e ON e.k = l.k) AS c",
        "a cross join",
    ),
    (
        "kept by an anti join that finds nothing",
        "SELECT c.v FROM s.d CROSS JOIN (SELECT l.v FROM s.l LEFT ANTI JOIN s.e ON e.k = l.k) AS c",
        "a cross join",
    ),
    ("USING and a full join", "SELECT k FROM s.d FULL JOIN s.m USING (k) LEFT JOIN s.l USING (k)", "only an engine"),
    ("nested joins", "SELECT d.id FROM s.d JOIN (s.l JOIN s.m ON m.id = l.m_id) ON l.k = d.k", "can't be analysed"),
    ("a lateral query", "SELECT d.id FROM s.d JOIN LATERAL (SELECT v FROM s.l WHERE l.k = d.k) AS c", "can't be analysed"),
    ("renamed columns", "SELECT d.id FROM s.d JOIN s.l AS c(a, b, x, y, z) ON c.a = d.k", "can't be analysed"),
    (
        "values",
        "SELECT d.id FROM s.d CROSS JOIN VALUES (1), (2) AS w(k) JOIN s.l ON l.k = w.k",
        "don't come from a single table",
    ),
    ("an exploded value", "SELECT t.w FROM s.d, s.l LATERAL VIEW explode(d.info) t AS w WHERE l.k = t.w", "a cross join"),
    (
        "a pivot",
        "SELECT d.id FROM s.d JOIN (SELECT * FROM s.l PIVOT (max(v) FOR k2 IN ('a', 'b'))) AS c ON c.k = d.k",
        "can't be analysed",
    ),
]


@pytest.mark.parametrize(("query", "paths"), [case[1:] for case in FOLLOWED], ids=[case[0] for case in FOLLOWED])
def test_access_paths_follow_lookups_by_columns(query: str, paths: list[str]) -> None:
    paths_read = read(query)
    assert describe(paths_read, "s.l") == paths
    assert "s.l" not in map(str, paths_read.reasons)


@pytest.mark.parametrize(("query", "reason"), [case[1:] for case in WHOLE], ids=[case[0] for case in WHOLE])
def test_access_paths_explain_lookups_that_need_all_rows(query: str, reason: str) -> None:
    paths_read = read(query)
    assert describe(paths_read, "s.l") is None
    assert reason in paths_read.reasons[TableName("s", "l")]


def test_access_paths_name_the_line_of_a_reason() -> None:
    paths = read("SELECT d.id\nFROM s.d\nLEFT JOIN s.l\n  ON l.at <= d.at")
    assert paths.reasons == {TableName("s", "l"): "line 3: the join condition has no equality"}


def test_access_paths_order_sources_first() -> None:
    query = "SELECT d.id FROM s.d, s.l, s.m WHERE l.m_id = m.id AND m.k = d.k"
    paths = read(query)
    assert [str(table) for table in paths.order] == ["s.m", "s.l"]
    assert (describe(paths, "s.m"), describe(paths, "s.l")) == (["k < s.d k"], ["m_id < s.m id"])


def test_access_paths_break_a_cycle_at_its_start() -> None:
    paths = read("SELECT d.id FROM s.d CROSS JOIN s.m JOIN s.l ON l.m_id = m.id")
    assert (describe(paths, "s.m"), describe(paths, "s.l")) == (None, ["m_id < s.m id"])
    assert "which is only reachable from it" in paths.reasons[TableName("s", "m")]


def test_access_paths_resolve_nested_namespaces_and_spelling() -> None:
    paths = read("SELECT d.id FROM s.d LEFT JOIN deep.s.o ON deep.s.o.key = d.K LEFT JOIN deep.s.o AS x ON x.KEY = d.k2")
    assert describe(paths, "deep.s.o") == ["Key < s.d k", "Key < s.d k2"]


def test_access_paths_follow_qualified_unknown_columns() -> None:
    known = {TableName("s", "d"): ("id", "k")}
    qualified = parse_query("SELECT d.id, x.v FROM s.d LEFT JOIN py.x ON x.k = d.k", place=PLACE)
    assert describe(access_paths(qualified, known=known), "py.x") == ["k < s.d k"]
    bare = parse_query("SELECT id, v FROM s.d LEFT JOIN py.x ON code = k", place=PLACE)
    assert describe(access_paths(bare, known={}), "py.x") is None


def test_access_paths_stop_at_many_readers_of_ctes() -> None:
    ctes = ["c0 AS (SELECT k, v FROM s.l)"]
    ctes += [f"c{i} AS (SELECT a.k, b.v FROM c{i - 1} AS a JOIN c{i - 1} AS b ON a.k = b.k)" for i in range(1, 16)]
    paths = read(f"WITH {', '.join(ctes)} SELECT d.id FROM s.d JOIN c15 ON c15.k = d.k")
    assert describe(paths, "s.l") is None


KEYS = [
    ("plain", "SELECT id, k, upper(k2) AS u FROM s.d", ["id", "u"], {"s.d": ["id=id"]}),
    ("renamed", "SELECT id AS a FROM s.d", ["a"], {"s.d": ["id=a"]}),
    ("only expressions", "SELECT upper(id) AS id FROM s.d", ["id"], {"s.d": []}),
    ("group keys", "SELECT k, date(at) AS day, count(*) AS n FROM s.d GROUP BY k, date(at)", ["k", "day"], {"s.d": ["k=k"]}),
    ("through a CTE", "WITH c AS (SELECT k AS a, max(n) AS n FROM s.d GROUP BY k) SELECT a, n FROM c", ["a"], {"s.d": ["k=a"]}),
    ("an aggregate", "SELECT max(k) AS k FROM s.d GROUP BY id", ["k"], {"s.d": []}),
    ("joined", "SELECT d.id, l.v FROM s.d LEFT JOIN s.l ON l.k = d.k", ["id", "v"], {"s.d": ["id=id"]}),
    ("USING", "SELECT k, v FROM s.d LEFT JOIN s.l USING (k)", ["k"], {"s.d": ["k=k"]}),
    ("inner join, the lookup's column", "SELECT l.k FROM s.d JOIN s.l ON l.k = d.k", ["k"], {"s.d": ["k=k"]}),
    ("left join, the lookup's column", "SELECT l.k FROM s.d LEFT JOIN s.l ON l.k = d.k", ["k"], {"s.d": []}),
    ("a window by the key", "SELECT id, k, sum(n) OVER (PARTITION BY k) AS n FROM s.d", ["id", "k"], {"s.d": ["k=k"]}),
    ("a window by another column", "SELECT id, sum(n) OVER (PARTITION BY k) AS n FROM s.d", ["id"], None),
    ("a window over all", "SELECT id, rank() OVER (ORDER BY n) AS n FROM s.d", ["id"], None),
    ("LIMIT", "SELECT id FROM s.d ORDER BY id LIMIT 3", ["id"], None),
    ("LIMIT below", "SELECT id FROM (SELECT id FROM s.d LIMIT 3)", ["id"], None),
    ("full join", "SELECT d.id, l.v FROM s.d FULL JOIN s.l ON l.k = d.k", ["id"], None),
    ("rollup", "SELECT k, count(*) AS n FROM s.d GROUP BY ROLLUP(k)", ["k"], None),
    (
        "branches",
        "SELECT id, k FROM s.d UNION ALL SELECT j, k FROM s.e",
        ["id", "k"],
        {"s.d": ["id=id", "k=k"], "s.e": ["j=id", "k=k"]},
    ),
    ("a branch without keys", "SELECT id FROM s.d UNION ALL SELECT upper(id) FROM s.e", ["id"], {"s.d": ["id=id"], "s.e": []}),
    ("a driver in two branches", "SELECT id, k FROM s.d UNION ALL SELECT id, k2 FROM s.d", ["id", "k"], {"s.d": ["id=id"]}),
    ("a mixed branch", "SELECT id FROM s.d UNION ALL (SELECT id FROM s.e LIMIT 1)", ["id"], None),
    ("exploded", "SELECT id, t.w FROM s.d LATERAL VIEW explode(info) t AS w", ["id", "w"], {"s.d": ["id=id"]}),
    (
        "joined to itself by the key",
        "SELECT d.id, c.n FROM s.d JOIN (SELECT id, count(*) AS n FROM s.d GROUP BY id) AS c ON c.id = d.id",
        ["id"],
        {"s.d": ["id=id"]},
    ),
    (
        "joined to itself by another column",
        "SELECT d.id, c.n FROM s.d JOIN (SELECT k, count(*) AS n FROM s.d GROUP BY k) AS c ON c.k = d.k",
        ["id"],
        {"s.d": []},
    ),
    ("an unknown key", "SELECT id FROM s.d", ["nothing"], {"s.d": []}),
]


@pytest.mark.parametrize(("query", "keys", "expected"), [case[1:] for case in KEYS], ids=[case[0] for case in KEYS])
def test_key_paths_trace_keys_to_driver_columns(query: str, keys: Sequence[str], expected: dict[str, list[str]] | None) -> None:
    columns_by_driver = key_paths(parse_query(query, place=PLACE), keys, known=KNOWN)
    shown = {str(table): [f"{column}={key}" for column, key in pairs] for table, pairs in (columns_by_driver or {}).items()}
    assert (shown, columns_by_driver is None) == (expected or {}, expected is None)


@cache
def shipped(pipeline: str) -> dict[str, tuple[LayerTable, ParsedQuery, dict[TableName, tuple[str, ...]]]]:
    """Return the SQL tables of a built-in pipeline, with the columns of all its tables."""
    loaded = load_pipeline(pipeline, environ={}, folder=Path.cwd())
    lineage = trace_lineage(loaded)
    known = {table.table: tuple(column.name for column in table.columns) for table in lineage.tables if table.whole}
    tables = [(table, table.source) for table in loaded.tables if isinstance(table.source, Query)]
    return {str(table.table): (table, parse_query(source.text, place=table.place), known) for table, source in tables}


CHARGES = "payments_db.payment_charges_cleaned"
SHIPPED = {
    ("payments", "payments_db.charges_enriched"): {
        "payments_db.customers": [f"customer_id < {CHARGES} customer_id"],
        "payments_db.merchants": [f"merchant_id < {CHARGES} merchant_id"],
        "payments_db.payment_refunds_cleaned": [f"charge_id < {CHARGES} charge_id"],
        "payments_db.disputes": [f"charge_id < {CHARGES} charge_id"],
    },
    ("payments", "payments_db.fraud_training_set"): {
        "payments_db.disputes": ["customer_id < payments_db.charge_features customer_id"]
    },
    ("payments", "payments_db.disputes"): {
        "payments_db.merchants": ["merchant_id < payments_db.payment_disputes_cleaned merchant_id"]
    },
    ("payments", "payments_db.payment_charges_cleaned"): {
        "payments_db.iso_currencies": None,
        "payments_db.iso_countries": None,
    },
    ("payments", "payments_db.payment_disputes_cleaned"): {"payments_db.iso_currencies": None},
    ("payments", "payments_db.payment_refunds_cleaned"): {"payments_db.iso_currencies": None},
    ("payments", "payments_db.payment_subscriptions_cleaned"): {"payments_db.iso_currencies": None},
    ("payments", "payments_db.payment_events"): {
        "payments_db.iso_countries": [
            "alpha_2 < payments_db.payment_charges billing_country",
            "alpha_2 < payments_db.payment_charges card_country",
        ]
    },
    ("commerce", "staging.stg_shopify_orders"): {"reference.iso_currencies": None},
    ("commerce", "staging.stg_stripe_charges"): {"reference.iso_currencies": None},
    ("commerce", "analytics.entity_orders"): {"semantic.entity_index": ["source_id < staging.stg_shopify_orders source_id"]},
    ("commerce", "analytics.entity_charges"): {"semantic.entity_index": ["source_id < staging.stg_stripe_charges source_id"]},
    ("commerce", "marts.customer_360"): {
        "staging.stg_hubspot_contacts": ["contact_id < semantic.entity_index source_id"],
        "staging.stg_shopify_customers": ["customer_id < semantic.entity_index source_id"],
    },
    ("storefront", "serve.storefront.customer_lifetime_value"): {
        "shape.storefront.customers": ["id < shape.storefront.orders customer_id"]
    },
    ("storefront", "serve.storefront.product_performance"): {
        "shape.storefront.orders": ["id < shape.storefront.order_items order_id"],
        "shape.storefront.products": ["id < shape.storefront.order_items product_id"],
        "serve.storefront.product_ratings": None,
    },
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_access_paths_cover_every_built_in_table(pipeline: str) -> None:
    for name, (_, parsed, known) in shipped(pipeline).items():
        paths = access_paths(parsed, known=known)
        assert {str(table): describe(paths, str(table)) for table in paths.order} == SHIPPED.get((pipeline, name), {}), name


@pytest.mark.parametrize(
    ("pipeline", "table", "expected"),
    [
        ("payments", "payments_db.charges_enriched", {CHARGES: "event_id created_at"}),
        (
            "payments",
            "payments_db.customers",
            {"payments_db.customer_days": "customer_id", "payments_db.subscriptions": "customer_id"},
        ),
        ("payments", "payments_db.customer_days", {CHARGES: "customer_id"}),
        ("payments", "payments_db.disputes", {"payments_db.payment_disputes_cleaned": "dispute_id"}),
        ("payments", "payments_db.payment_charges_cleaned", {"payments_db.payment_charges": ""}),
        ("payments", "payments_db.event_arrivals", {"payments_db.repeated_events": "stream"}),
        ("payments", "payments_db.charge_features", None),
        (
            "payments",
            "payments_db.payments_daily",
            {"payments_db.payment_transactions": "provider transaction_type status currency"},
        ),
        (
            "commerce",
            "marts.sales_dashboard_daily",
            {"analytics.order_summary": "starts_on currency", "analytics.payment_metrics": "day currency"},
        ),
        ("commerce", "marts.customer_360", {"semantic.entity_index": "entity_id", "analytics.customer_metrics": "entity_id"}),
        ("storefront", "serve.storefront.product_performance", {"shape.storefront.order_items": ""}),
        ("weather", "default.weather_by_minute", {"default.weather": ""}),
    ],
)
def test_key_paths_of_built_in_tables(pipeline: str, table: str, expected: dict[str, str] | None) -> None:
    settings, parsed, known = shipped(pipeline)[table]
    columns_by_driver = key_paths(parsed, settings.keys, known=known)
    shown = {str(driver): " ".join(column for column, _ in pairs) for driver, pairs in (columns_by_driver or {}).items()}
    assert (shown, columns_by_driver is None) == (expected or {}, expected is None)
