"""Queries that combine several rows: the kinds of tables that support them, and the errors for other kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.test_followed_lookups import check_table

APPEND = "kind: append"
UPSERT = "keys: [id]\nsequence_by: n"
HISTORY = f"{UPSERT}\nstored_as_scd_type: 2"
NEWEST = "row_number() OVER (PARTITION BY id ORDER BY at DESC)"


@pytest.mark.parametrize(
    ("header", "query", "what"),
    [
        (APPEND, "SELECT code, count(*) AS orders FROM raw.orders GROUP BY code", "GROUP BY"),
        (APPEND, "SELECT DISTINCT code FROM raw.orders", "DISTINCT"),
        (APPEND, "SELECT id, lag(n) OVER (PARTITION BY code ORDER BY at) AS before FROM raw.orders", "a window function"),
        (APPEND, "SELECT id FROM (SELECT id, n FROM raw.orders ORDER BY n LIMIT 5)", "LIMIT"),
        (APPEND, "SELECT id FROM raw.orders UNION SELECT name AS id FROM raw.people", "UNION"),
        (APPEND, "SELECT max(n) AS most FROM raw.orders", "an aggregate"),
        (APPEND, "WITH d AS (SELECT DISTINCT id FROM raw.orders) SELECT id FROM d", "DISTINCT"),
        (UPSERT, "SELECT upper(code) AS id, max(n) AS n, count(*) AS orders FROM raw.orders GROUP BY upper(code)", "GROUP BY"),
        (HISTORY, "SELECT id, n, rank() OVER (PARTITION BY code ORDER BY at) AS place FROM raw.orders", "a window function"),
        (UPSERT, "SELECT id, n, rank() OVER (ORDER BY n) AS place FROM raw.orders", "a window function"),
    ],
)
def test_check_rejects_mixed_rows_in_row_wise_kinds(tmp_path: Path, header: str, query: str, what: str) -> None:
    (error,) = check_table(tmp_path, query, header).errors
    assert f"{what} combines several rows" in error.what
    assert "write kind: full" in error.next_step
    assert check_table(tmp_path, query, "kind: full").errors == ()


COUNTED = "SELECT upper(code) AS id, count(DISTINCT n) AS c FROM raw.orders GROUP BY upper(code)"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT c AS id, count(*) AS n FROM (SELECT id, count(*) AS c FROM raw.orders GROUP BY id) GROUP BY c", 'key "id" is'),
        (f"SELECT id, c FROM ({COUNTED}) WHERE c > 1", "a filter on a value computed from several rows"),
        (f"WITH counted AS ({COUNTED}) SELECT * FROM counted s WHERE s.id <> 'a' AND s.c = 1", "a filter on a value"),
        (f"SELECT id, n FROM (SELECT upper(id) AS id, n, {NEWEST} AS r FROM raw.orders) WHERE r = 2", "a filter on a value"),
        (COUNTED.replace(" AS c", " AS c, sum(count(*)) OVER () AS total"), "mixes rows of different keys"),
        (f"{COUNTED} ORDER BY c DESC LIMIT 3", "LIMIT keeps rows depending on other rows"),
    ],
)
def test_check_rejects_keys_that_depend_on_other_rows(tmp_path: Path, query: str, why: str) -> None:
    (error,) = check_table(tmp_path, query, "keys: [id]").errors
    assert error.what.startswith("can't map changed rows to keys: ")
    assert why in error.what
    assert "a separate table" in error.next_step


@pytest.mark.parametrize(
    ("header", "query"),
    [
        (
            APPEND,
            "SELECT id, (SELECT max(f.rate) FROM staging.fixed f) AS n FROM raw.orders",
        ),
        (
            APPEND,
            "SELECT o.id, f.rates FROM raw.orders o "
            "LEFT JOIN (SELECT code, count(*) AS rates FROM staging.fixed GROUP BY code) f ON f.code = o.code",
        ),
        (UPSERT, f"SELECT id, n FROM (SELECT id, n, {NEWEST} AS r FROM raw.orders) WHERE r = 1"),
        (UPSERT, "SELECT id, max(n) AS n, count(*) AS orders FROM raw.orders GROUP BY id"),
        (UPSERT, "SELECT DISTINCT upper(id) AS id, n FROM raw.orders UNION SELECT name AS id, n FROM raw.people"),
        (HISTORY, "SELECT id, n, lag(code) OVER (PARTITION BY id ORDER BY at) AS before FROM raw.orders"),
        ("keys: [id]", COUNTED),
        ("keys: [id]", f"SELECT id, c FROM ({COUNTED}) WHERE id <> 'a'"),
        ("keys: [id]", "SELECT id, c FROM (SELECT id, count(DISTINCT n) AS c FROM raw.orders GROUP BY id) WHERE c > 1"),
        (
            "keys: [id]",
            "SELECT id, n FROM (SELECT upper(code) AS id, n, row_number() OVER (PARTITION BY upper(code) ORDER BY n) AS r "
            "FROM raw.orders) WHERE r <= 1",
        ),
    ],
)
def test_check_accepts_queries_of_whole_keys(tmp_path: Path, header: str, query: str) -> None:
    assert check_table(tmp_path, query, header).errors == ()
