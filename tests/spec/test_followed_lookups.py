"""The lookups that a table follows, by which columns, and the errors for lookups that it can't follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.build.definition import definition_of
from headrace.spec import Check, TableName, check_pipeline, load_pipeline
from headrace.spec.model.layers import LayerTable
from tests.support.folders import write_files

PIPELINE = """\
name: mine
about: a test
streams:
  orders: {topic: orders, format: json, schema: schemas/order.sql, table: raw.orders}
  people: {topic: people, format: json, schema: schemas/person.sql, table: raw.people}
  places: {topic: places, format: json, schema: schemas/place.sql, table: raw.places}
"""
FILES = {
    "pipeline.yml": PIPELINE,
    "schemas/order.sql": "id STRING, Person INT, code STRING, n BIGINT, at TIMESTAMP",
    "schemas/person.sql": "id INT, name STRING, place STRING, n BIGINT",
    "schemas/place.sql": "id STRING, city STRING, n BIGINT",
    "staging/fixed.sql": "/*\nkind: full\n*/\nSELECT 'a' AS code, 1 AS rate",
}
ORDERS = TableName("raw", "orders")


def check_table(folder: Path, query: str, header: str = "keys: [id]", *, name: str = "marts/sales.sql") -> Check:
    text = query if name.endswith(".py") else f"/*\n{header}\n*/\n{query}"
    write_files(folder / "pipelines/mine", {**FILES, name: text})
    return check_pipeline("mine", environ={}, folder=folder)


def load_table(folder: Path, query: str, header: str = "keys: [id]") -> LayerTable:
    assert check_table(folder, query, header).errors == ()
    tables = load_pipeline("mine", environ={}, folder=folder).tables
    return next(table for table in tables if table.table.name == "sales")


def describe(table: LayerTable) -> dict[str, list[str] | None]:
    """Return each followed lookup with its routes as `columns = source.columns`."""
    return {
        str(name): routes
        if routes is None
        else [", ".join(f"{' '.join(p.columns)} = {p.source} {' '.join(p.source_columns)}" for p in route) for route in routes]
        for name, routes in table.follows.items()
    }


JOINED = "SELECT o.id, p.name FROM raw.orders o LEFT JOIN raw.people p ON p.id = o.person"
CHAINED = JOINED.replace("p.name", "p.name, c.city") + " LEFT JOIN raw.places c ON c.id = p.place"
BY_EXPRESSION = JOINED.replace("p.id = o.person", "p.name = upper(o.code)")
TO_PEOPLE = "id = raw.orders Person"


@pytest.mark.parametrize(
    ("query", "follows"),
    [
        (JOINED, {"raw.people": [TO_PEOPLE]}),
        (CHAINED, {"raw.people": [TO_PEOPLE], "raw.places": [f"id = raw.people place, {TO_PEOPLE}"]}),
        (JOINED.replace("p.id = o", "p.name = o.code AND p.id = o"), {"raw.people": ["name id = raw.orders code Person"]}),
        (JOINED.replace("p.id = o.person", "p.name = CAST(o.n AS STRING)"), {"raw.people": ["name = raw.orders n::string"]}),
        (JOINED.replace("p.id = o.person", "CAST(p.id AS STRING) = o.code"), {"raw.people": ["id::string = raw.orders code"]}),
        ("SELECT id FROM raw.orders WHERE person IN (SELECT id FROM raw.people)", {"raw.people": [TO_PEOPLE]}),
        (
            "SELECT o.id FROM raw.orders o WHERE NOT EXISTS (SELECT 1 FROM raw.people p WHERE p.id = o.person)",
            {"raw.people": [TO_PEOPLE]},
        ),
        ("SELECT o.id, f.rate FROM raw.orders o JOIN staging.fixed f ON f.code = upper(o.code)", {"staging.fixed": None}),
    ],
)
def test_follows_are_derived_from_joins(tmp_path: Path, query: str, follows: dict[str, list[str] | None]) -> None:
    assert describe(load_table(tmp_path, query)) == follows


def test_follows_go_through_a_frozen_lookup(tmp_path: Path) -> None:
    table = load_table(tmp_path, CHAINED, "keys: [id]\nfrozen: [raw.people]")
    assert describe(table) == {"raw.places": [f"id = raw.people place, {TO_PEOPLE}"]}
    assert table.followed == (ORDERS, TableName("raw", "places"))


def test_follows_go_through_declared_columns(tmp_path: Path) -> None:
    query = CHAINED.replace("p.id = o.person", "p.id = o.person + 0")
    table = load_table(tmp_path, query, "keys: [id]\nrebuild_on: {raw.people: {id: Person}}")
    assert describe(table) == {"raw.people": [TO_PEOPLE], "raw.places": [f"id = raw.people place, {TO_PEOPLE}"]}
    (error,) = check_table(tmp_path, query, "keys: [id]\nfrozen: [raw.people]").errors
    assert "changes of raw.places can't be followed: it is joined to raw.people, and there" in error.what
    both = load_table(tmp_path, query, "keys: [id]\nfrozen: [raw.people]\nrebuild_on: {raw.places: {id: code}}")
    assert describe(both) == {"raw.places": ["id = raw.orders code"]}


def test_follows_prefer_the_query_to_rebuild_on(tmp_path: Path) -> None:
    table = load_table(tmp_path, JOINED, "keys: [id]\nrebuild_on: {raw.people: {name: code}}")
    assert describe(table) == {"raw.people": [TO_PEOPLE]}


def test_rebuild_on_all_is_accepted(tmp_path: Path) -> None:
    for header in ("keys: [id]\n", "kind: append\n", "keys: [id]\nwindow: {partition_by: [id], order_by: at, range: 1h}\n"):
        table = load_table(tmp_path, BY_EXPRESSION.replace("o.id,", "o.id, o.at,"), f"{header}rebuild_on: {{raw.people: all}}")
        assert describe(table) == {"raw.people": None}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (BY_EXPRESSION, "line 4: the join condition compares expressions, not plain columns"),
        (JOINED.replace("p.id = o.person", "p.n < o.n"), "line 4: the join condition has no equality"),
        (
            JOINED.replace("LEFT JOIN raw.people p ON p.id = o.person", "CROSS JOIN raw.people p"),
            "a cross join has no condition",
        ),
        (
            "SELECT id, (SELECT max(n) FROM raw.people) AS n FROM raw.orders",
            "no equality of plain columns correlates the subquery",
        ),
    ],
)
def test_check_reports_a_join_that_it_can_not_follow(tmp_path: Path, query: str, why: str) -> None:
    (error,) = check_table(tmp_path, query).errors
    assert error.where.endswith("pipelines/mine/marts/sales.sql:4")
    assert error.what.startswith("changes of raw.people can't be followed: ")
    assert why in error.what
    assert "rebuild_on: {raw.people: {its_column: driver_column}}" in error.next_step
    assert "frozen: [raw.people]" in error.next_step
    for header in (
        "frozen: [raw.people]",
        "frozen: raw.people",
        "rebuild_on: {raw.people: {n: n}}",
        "rebuild_on: {raw.people: all}",
    ):
        assert check_table(tmp_path, query, f"keys: [id]\n{header}").errors == ()


@pytest.mark.parametrize("header", ["kind: append", "keys: [id]\nwindow: {partition_by: [id], order_by: at, range: 1h}"])
def test_check_rejects_lookups_of_kinds_without_row_rebuilds(tmp_path: Path, header: str) -> None:
    query = JOINED.replace("o.id,", "o.id, o.at,")
    (error,) = check_table(tmp_path, query, header).errors
    assert "can't rebuild individual rows" in error.what
    assert "rebuild_on: {raw.people: all}" in error.next_step
    assert check_table(tmp_path, query, f"{header}\nfrozen: [raw.people]").errors == ()


def test_python_table_must_declare_its_joins(tmp_path: Path) -> None:
    function = """from headrace import table


@table(keys=["id"]{})
def sales(orders, people):
    return orders.join(people, "id")
"""
    (error,) = check_table(tmp_path, function.format(""), name="marts/sales.py").errors
    assert error.where.endswith("marts/sales.py:5")
    assert "the joins of a Python function can't be analysed" in error.what
    for settings in (', rebuild_on={"raw.people": {"id": "Person"}}', ', frozen=["raw.people"]'):
        assert check_table(tmp_path, function.format(settings), name="marts/sales.py").errors == ()


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("frozen: [raw.places]", "frozen names raw.places, which the query does not join"),
        ("frozen: [raw.nothing]", "raw.nothing is not a table of this pipeline"),
        ("frozen: [people]", '"people" is not a valid table name'),
        ("frozen: [raw.people]\nrebuild_on: {raw.people: [id]}", "raw.people is in both rebuild_on and frozen"),
        ("rebuild_on: {raw.people: []}", "rebuild_on lists no columns"),
        ("rebuild_on: {raw.people: {name: nothing}}", 'rebuild_on: raw.orders has no columns "nothing"'),
        ("rebuild_on: {raw.people: {nothing: id}}", 'rebuild_on: "nothing" is not a column of raw.people'),
    ],
)
def test_check_reports_wrong_declarations(tmp_path: Path, header: str, what: str) -> None:
    errors = check_table(tmp_path, BY_EXPRESSION, f"keys: [id]\n{header}").errors
    assert what in [error.what for error in errors]
    assert all(error.where.split(":")[-1] in ("3", "4", "5", "6") for error in errors)


def test_check_skips_joins_to_a_broken_table(tmp_path: Path) -> None:
    write_files(tmp_path / "pipelines/mine", {**FILES, "staging/broken.sql": "SELECT nothing AS id FROM raw.people"})
    errors = check_table(tmp_path, "SELECT id, name FROM raw.orders LEFT JOIN staging.broken ON id = person").errors
    assert [error.what for error in errors] == ['not found: column "nothing" in the inputs']


def test_definition_excludes_frozen_lookups(tmp_path: Path) -> None:
    assert definition_of(load_table(tmp_path, JOINED)) == definition_of(
        load_table(tmp_path, JOINED, "keys: [id]\nfrozen: raw.people")
    )


SELF_JOINED = "SELECT o.id, count(l.id) AS others FROM raw.orders o JOIN raw.orders l ON l.code = o.code GROUP BY o.id"
BY_KEY = (
    "SELECT o.code, count(*) AS orders, max(s.n) AS most FROM raw.orders o "
    "JOIN (SELECT code, n FROM raw.orders WHERE n > 1) s ON s.code = o.code GROUP BY o.code"
)


@pytest.mark.parametrize(
    "query",
    [
        SELF_JOINED,
        "WITH s AS (SELECT * FROM raw.orders) SELECT o.id, count(l.id) AS n FROM s o JOIN s l ON l.code = o.code GROUP BY o.id",
        "SELECT id, n FROM raw.orders WHERE code IN (SELECT code FROM raw.orders WHERE n > 1)",
        "SELECT o.id, (SELECT max(n) FROM raw.orders) AS most FROM raw.orders o",
        "SELECT id, n FROM raw.orders o WHERE NOT EXISTS (SELECT 1 FROM raw.orders l WHERE l.code = o.code AND l.n > o.n)",
        "SELECT id, n FROM raw.orders UNION ALL "
        "SELECT p.name AS id, o.n FROM raw.people p JOIN raw.orders o ON o.person = p.id",
        BY_KEY.replace("o.code, count", "o.code, CAST(o.at AS DATE) AS id, count") + ", CAST(o.at AS DATE)",
    ],
)
def test_check_rejects_a_self_join_beyond_the_keys(tmp_path: Path, query: str) -> None:
    (error,) = check_table(tmp_path, query).errors
    assert error.what.startswith("changes of raw.orders can't be followed: the query reads it twice")
    assert "rebuild_on: {raw.orders: all}" in error.next_step
    assert "frozen: [raw.orders]" in error.next_step
    declared = load_table(tmp_path, query, "keys: [id]\nrebuild_on: {raw.orders: all}")
    assert describe(declared)["raw.orders"] is None
    assert "raw.orders" not in describe(load_table(tmp_path, query, "keys: [id]\nfrozen: [raw.orders]"))


@pytest.mark.parametrize(
    "query",
    [
        BY_KEY,
        "WITH s AS (SELECT * FROM raw.orders) "
        "SELECT o.code, count(l.id) AS n FROM s o JOIN s l ON l.code = o.code GROUP BY o.code",
        "SELECT code, n FROM raw.orders WHERE n > 1 UNION ALL SELECT code, -n AS n FROM raw.orders WHERE n < 1",
        "WITH s AS (SELECT * FROM raw.orders) SELECT code, n FROM s UNION ALL SELECT code, -n AS n FROM s",
    ],
)
def test_self_join_by_the_keys_is_followed(tmp_path: Path, query: str) -> None:
    assert describe(load_table(tmp_path, query, "keys: [code]")) == {}


@pytest.mark.parametrize("header", ["kind: append", "keys: [id]\nwindow: {partition_by: [id], order_by: at, range: 1h}"])
def test_check_rejects_a_self_join_in_an_append_table(tmp_path: Path, header: str) -> None:
    query = "SELECT o.id, o.at, l.n FROM raw.orders o JOIN raw.orders l ON l.id = o.id"
    (error,) = check_table(tmp_path, query, header).errors
    assert "can't follow that" in error.what
