"""Decomposition of queries into keys and aggregates, and the reasons why others can't be decomposed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spec import load_pipeline
from headrace.spec.model.pipeline import TableName
from headrace.spec.sql.aggregates import Decomposition, Recomputed, decompose
from headrace.spec.sql.aggregates.calls import Call
from tests.build.aggregates.group_table import group_table

FROZEN = (TableName("mine", "others"),)


def taken_apart(query: str, *keys: str) -> Decomposition:
    result = decompose(group_table(query, keys=keys, frozen=FROZEN))
    assert isinstance(result, Decomposition), result
    return result


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT g, count(*) AS n FROM mine.facts GROUP BY g", ["g"]),
        ("SELECT f.g, count(*) AS n FROM mine.facts AS f GROUP BY g", ["g"]),
        ("SELECT g AS h, count(*) AS n FROM mine.facts GROUP BY 1", ["h"]),
        ("SELECT g, date(at) AS day, count(*) AS n FROM mine.facts GROUP BY ALL", ["g", "day"]),
        ("SELECT date(at) AS day, count(*) AS n FROM mine.facts GROUP BY day", ["day"]),
        ("SELECT `g`, count(*) AS n FROM mine.facts WHERE g <> 'FROM' GROUP BY G", ["g"]),
        (
            "SELECT f.g, s.name, count(*) AS n FROM mine.facts f JOIN mine.shops s ON s.id = f.shop_id GROUP BY f.g, s.name",
            ["g", "name"],
        ),
        ("SELECT tag, count(*) AS n FROM mine.facts LATERAL VIEW explode(tags) t AS tag GROUP BY tag", ["tag"]),
        ("WITH c AS (SELECT g, a + 1 AS b FROM mine.facts WHERE a > 0) SELECT g, sum(b) AS b FROM c GROUP BY g", ["g"]),
        ("SELECT g, sum(b) AS b FROM (SELECT g, b FROM mine.facts UNION ALL SELECT g, c FROM mine.others) GROUP BY g", ["g"]),
        (
            "SELECT g, count_if(a IS DISTINCT FROM b) AS n, a IS DISTINCT FROM 'x' AS same, a FROM mine.facts GROUP BY g, a",
            ["g", "a"],
        ),
        ("SELECT g, count(*) AS n FROM mine.facts WHERE id IN (SELECT id FROM mine.shops) GROUP BY g", ["g"]),
        ("SELECT g, array_sort(collect_set(a) FILTER (WHERE b > 0)) AS all_a FROM mine.facts GROUP BY g", ["g"]),
    ],
)
def test_decompose_takes_single_level_queries(query: str, keys: list[str]) -> None:
    assert list(taken_apart(query, *keys).keys) == keys


def test_decompose_keeps_the_text_of_calls_and_outputs() -> None:
    decomposition = taken_apart(
        """SELECT g, /* count(*) */ upper(g) AS shouted,
    CAST(sum(IF(a > 0, b, 0)) FILTER (WHERE c LIKE '%(%') / count(*) -- sum(x)
        AS DOUBLE) AS share, count(*) AS n, 'min(x)' AS note
FROM mine.facts GROUP BY g""",
        "g",
    )
    assert decomposition.calls == (Call("sum", ("IF(a > 0, b, 0)",), "c LIKE '%(%'"), Call("count", ("*",)))
    outputs = {
        name: tuple(part.strip() if isinstance(part, str) else part for part in parts) for name, parts in decomposition.outputs
    }
    assert outputs == {
        "g": ("`g`",),
        "shouted": ("upper(`g`)",),
        "share": ("CAST(", 0, "/", 1, "AS DOUBLE)"),
        "n": (1,),
        "note": ("'min(x)'",),
    }
    text = decomposition.with_columns({"x": "max(a)"})
    assert text.text.endswith(",\nmax(a) AS `x`\nFROM mine.facts GROUP BY g")
    (reference,) = text.references
    assert text.text[reference.start : reference.end] == "mine.facts"


def test_decompose_separates_having() -> None:
    decomposition = taken_apart("SELECT g, max(a) AS a FROM mine.facts GROUP BY g HAVING count(*) > 1 AND g <> 'x' -- it", "g")
    assert decomposition.calls == (Call("max", ("a",)), Call("count", ("*",)))
    assert decomposition.having == (1, "> 1 AND `g` <> 'x'\n")
    assert (
        decomposition.with_columns({"x": "min(a)"}).text
        == "SELECT g, max(a) AS a ,\nmin(a) AS `x`\nFROM mine.facts GROUP BY g  -- it"
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT g, a FROM mine.facts", "the query has no GROUP BY"),
        (
            "WITH f AS (SELECT a,\ncount(*) AS n FROM mine.facts GROUP BY\na) SELECT f.a AS g, f.n FROM f",
            "line 3: the GROUP BY is in a subquery or CTE; to add changes instead, put it into a table of its own",
        ),
        ("SELECT g, count(DISTINCT a) AS n FROM mine.facts GROUP BY g", "count(DISTINCT …) needs all values of a key"),
        ("SELECT g, percentile(a, 0.5) AS p FROM mine.facts GROUP BY g", "line 1: percentile() needs all values of a key"),
        ("SELECT g, collect_list(a) AS l FROM mine.facts GROUP BY g", "line 1: collect_list() needs all values of a key"),
        (
            "SELECT g, collect_set(a) AS l FROM mine.facts GROUP BY g",
            "collect_set(…) has no order: write array_sort(collect_set(…))",
        ),
        (
            "SELECT g, array_sort(collect_set(a), (x, y) -> 0) AS l FROM mine.facts GROUP BY g",
            "collect_set(…) has no order: write array_sort(collect_set(…))",
        ),
        ("SELECT g, first(a) AS l FROM mine.facts GROUP BY g", "line 1: first() needs all values of a key"),
        ("SELECT g, sum(n) OVER (PARTITION BY g) AS s FROM mine.facts GROUP BY g, n", "line 1: a window function"),
        ("SELECT g, count(*) AS n FROM mine.facts GROUP BY g, a", "no column contains the GROUP BY expression a"),
        ("SELECT g, a, count(*) AS n FROM mine.facts GROUP BY g, a", "the query groups by g, a, but the keys are g"),
        ("SELECT g, count(*) AS n FROM mine.facts GROUP BY ROLLUP (g)", "several grouping sets"),
        ("SELECT DISTINCT g, count(*) AS n FROM mine.facts GROUP BY g", "line 1: DISTINCT"),
        ("SELECT date(g) AS g, count(*) AS n FROM mine.facts GROUP BY g", "no column contains the GROUP BY expression g"),
        ("SELECT g, count(*) AS n FROM mine.facts GROUP BY g LIMIT 3", "line 1: LIMIT"),
        ("SELECT g, count(*) FROM mine.facts GROUP BY g", "a column without a name"),
        (
            "SELECT g, sum(n) AS n FROM (SELECT g, count(*) AS n FROM mine.facts GROUP BY g, a) GROUP BY g",
            "line 1: several levels of GROUP BY",
        ),
        ("SELECT g, sum(n) AS n FROM (SELECT DISTINCT g, n FROM mine.facts) GROUP BY g", "line 1: DISTINCT"),
        (
            "SELECT g, max(n) AS n FROM (SELECT g, n FROM mine.facts UNION SELECT g, m FROM mine.more) GROUP BY g",
            "line 1: only UNION ALL keeps rows apart",
        ),
        (
            "SELECT g, max(r) AS r FROM (SELECT g, rank() OVER (ORDER BY a) AS r FROM mine.facts) GROUP BY g",
            "line 1: a window function",
        ),
        (
            "SELECT f.g, count(*) AS n FROM mine.facts f JOIN mine.facts o ON o.id = f.other GROUP BY f.g",
            "line 1: a driver is joined to itself, or read in a subquery",
        ),
        (
            "WITH c AS (SELECT max(a) AS a FROM mine.facts) "
            "SELECT f.g, count(*) AS n FROM mine.facts f JOIN c ON c.a = f.a GROUP BY f.g",
            "line 1: a driver is joined to itself, or read in a subquery",
        ),
        (
            "SELECT s.g, count(*) AS n FROM mine.facts f FULL JOIN mine.shops s ON s.id = f.shop_id GROUP BY s.g",
            "line 1: a FULL JOIN keeps unmatched rows",
        ),
        (
            "SELECT f.g, count(*) AS n FROM mine.facts f JOIN mine.others o ON o.id = f.id GROUP BY f.g",
            "changes of mine.others are not followed (frozen)",
        ),
        ("SELECT g, count_if(at > now()) AS n FROM mine.facts GROUP BY g", "NOW() has a different value in each build"),
        (
            "SELECT g, count(*) AS n, (SELECT max(id) FROM mine.shops) AS m FROM mine.facts GROUP BY g",
            "line 1: a subquery next to aggregates",
        ),
        (
            "SELECT g, count(*) AS n FROM mine.facts GROUP BY g UNION ALL SELECT g, 1 FROM mine.more",
            "the query is a UNION without a GROUP BY around it",
        ),
        (
            "SELECT g, count(*) AS n FROM mine.facts GROUP BY g HAVING n > 1",
            '"HAVING" depends on "n", which is not a key',
        ),
        (
            "SELECT g, count(*) AS n FROM mine.facts GROUP BY g HAVING count(*) > (SELECT max(id) FROM mine.shops)",
            "line 1: a subquery next to aggregates",
        ),
    ],
)
def test_decompose_explains_unsupported_queries(query: str, reason: str) -> None:
    assert decompose(group_table(query, keys=["g"], frozen=FROZEN)) == Recomputed(reason)


def test_decompose_covers_the_built_in_pipelines(tmp_path: Path) -> None:
    added = {
        str(table.table)
        for name in ("payments", "storefront", "commerce", "lineage", "weather")
        for table in load_pipeline(name, environ={}, folder=tmp_path).tables
        if table.kind == "aggregate" and isinstance(decompose(table), Decomposition)
    }
    assert added == {
        "payments_db.customer_days",
        "payments_db.merchant_days",
        "payments_db.subscriptions",
        "payments_db.customers",
        "payments_db.failure_and_dispute_rates",
        "payments_db.payments_daily",
        "payments_db.data_quality_summary",
        "serve.storefront.customer_lifetime_value",
        "serve.storefront.order_funnel",
        "serve.storefront.product_ratings",
        "staging.stg_hubspot_contacts",
        "staging.stg_hubspot_companies",
        "analytics.customer_metrics",
        "marts.sales_dashboard_daily",
        "semantic.merged_entities",
        "default.weather_by_minute",
    }
