"""Postgres never differs from the lake silently: schema changes, manual changes and restored backups."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headrace.errors import PublishError
from headrace.operations.compare.published_rows import PublishedComparison, compare_published
from headrace.serving.publish.publish import Published, publish
from headrace.serving.publish.published import read_published
from tests.serving.price_list import DDL, PriceList, ask

pytestmark = pytest.mark.services

THREE = {"a": ("1.10", "red"), "b": ("2.20", "blue"), "c": ("3.30", "green")}
WITH_COLOUR = DDL.replace("changed", "colour TEXT, changed")


@pytest.fixture
def prices(tmp_path: Path) -> PriceList:
    return PriceList(tmp_path)


def show(prices: PriceList, dsn: str, *, full: bool = False) -> Published | None:
    return publish(dsn, prices.catalog, prices.published, full=full, pipeline="shop")


def compare(prices: PriceList, dsn: str) -> PublishedComparison:
    return compare_published(dsn, prices.catalog, prices.published)


def colours(dsn: str) -> list[tuple[str, str]]:
    return ask(dsn, "SELECT id, colour FROM prices ORDER BY id")


@pytest.fixture
def published(prices: PriceList, database: str) -> PriceList:
    prices.build(THREE)
    show(prices, database)
    assert compare(prices, database) == PublishedComparison(rows=3)
    return prices


def test_column_added_to_the_ddl_is_added_in_postgres_and_filled_in_all_rows(published: PriceList, database: str) -> None:
    published.write_ddl(WITH_COLOUR)
    comparison = compare(published, database)
    assert comparison.problems == ('column "colour" is missing in Postgres: ALTER TABLE "prices" ADD COLUMN "colour" text;',)
    published.build({"c": ("3.30", "black")})
    done = show(published, database)
    assert done is not None
    assert colours(database) == [("a", "red"), ("b", "blue"), ("c", "black")]
    assert compare(published, database) == PublishedComparison(rows=3)
    assert show(published, database) is None


def test_column_added_without_a_new_build_is_filled_too(published: PriceList, database: str) -> None:
    published.write_ddl(WITH_COLOUR.replace("colour TEXT", "colour TEXT NOT NULL"))
    show(published, database)
    assert colours(database) == [("a", "red"), ("b", "blue"), ("c", "green")]
    with pytest.raises(psycopg.errors.NotNullViolation):
        ask(database, "UPDATE prices SET colour = NULL")


def test_column_added_by_hand_and_in_the_ddl_is_filled_in_all_rows(published: PriceList, database: str) -> None:
    ask(database, "ALTER TABLE prices ADD COLUMN colour TEXT")
    published.write_ddl(WITH_COLOUR)
    assert compare(published, database).different == 3
    show(published, database)
    assert colours(database) == [("a", "red"), ("b", "blue"), ("c", "green")]


def test_progress_of_an_earlier_version_publishes_all_rows_once(published: PriceList, database: str) -> None:
    """Rows that earlier versions left without a new column's values are repaired by the first publication."""
    for name in ("table_uuid", "snapshot_id", "sequence_number", "layout", "shape"):
        ask(database, f"ALTER TABLE headrace_published DROP COLUMN {name}")
    ask(database, "UPDATE prices SET price = NULL WHERE id = 'a'")
    done = show(published, database)
    assert done is not None
    assert (done.rows, compare(published, database)) == (1, PublishedComparison(rows=3))
    assert show(published, database) is None


def test_role_that_may_not_alter_the_table_gets_the_statement(published: PriceList, database: str) -> None:
    ask(database, "DROP ROLE IF EXISTS price_writer")
    ask(database, "CREATE ROLE price_writer; GRANT price_writer TO CURRENT_USER")
    ask(database, "GRANT ALL ON prices, headrace_published TO price_writer")
    writer = make_conninfo(database, options="-c role=price_writer")
    try:
        published.write_ddl(WITH_COLOUR)
        with pytest.raises(PublishError, match="must be owner of table prices") as caught:
            show(published, writer)
        assert 'ALTER TABLE "prices" ADD COLUMN "colour" text;' in caught.value.next_step
        ask(database, "ALTER TABLE prices ADD COLUMN colour text")
        show(published, writer)
        assert colours(database) == [("a", "red"), ("b", "blue"), ("c", "green")]
    finally:
        ask(database, "REVOKE ALL ON prices, headrace_published FROM price_writer; DROP ROLE price_writer")


def test_changed_type_is_refused_with_the_statement_and_repaired_by_full(published: PriceList, database: str) -> None:
    published.write_ddl(DDL.replace("NUMERIC(10, 2)", "TEXT"))
    published.build({"d": ("4.40", "red")})
    comparison = compare(published, database)
    assert comparison.different == 1
    assert comparison.problems[0] == "Postgres has build 1, and the lake has build 2"
    assert comparison.problems[1].startswith(
        'column "price" is numeric(10,2) in Postgres and text in the DDL: ALTER TABLE "prices"'
    )
    with pytest.raises(PublishError, match=r"price.* is numeric") as caught:
        show(published, database)
    assert "headrace publish shop --table prices --full" in caught.value.next_step
    statement = caught.value.next_step.split("Or run: ")[1]
    assert ask(database, "SELECT count(*) FROM prices") == [(3,)]
    show(published, database, full=True)
    assert ask(database, "SELECT id, price FROM prices ORDER BY id")[-1] == ("d", "4.40")
    assert compare(published, database) == PublishedComparison(rows=4)
    ask(database, f"ALTER TABLE prices ALTER COLUMN price TYPE numeric(10, 2) USING price::numeric; {statement}")
    show(published, database)
    assert compare(published, database) == PublishedComparison(rows=4)


def test_columns_removed_from_the_ddl_are_dropped_by_full(published: PriceList, database: str) -> None:
    published.write_ddl(WITH_COLOUR)
    show(published, database)
    published.write_ddl(DDL)
    assert show(published, database) is not None
    problem = 'column "colour" is in Postgres and not in the DDL: ALTER TABLE "prices" DROP COLUMN "colour";'
    assert compare(published, database).problems == (problem,)
    ask(database, "ALTER TABLE prices ADD COLUMN note TEXT DEFAULT 'mine'")
    show(published, database, full=True)
    columns = (
        "SELECT string_agg(column_name, ' ' ORDER BY column_name) FROM information_schema.columns WHERE table_name = 'prices'"
    )
    assert ask(database, columns) == [("changed id note price",)]  # the user's own column stays


@pytest.mark.parametrize(
    ("change", "example"),
    [
        ("UPDATE prices SET price = 9 WHERE id = 'b'", "id b: price"),
        ("UPDATE prices SET price = NULL WHERE id = 'b'", "id b: price"),
        ("DELETE FROM prices WHERE id = 'b'", "id b: only in the lake"),
        ("INSERT INTO prices VALUES ('x', 1)", "id x: only in Postgres"),
    ],
)
def test_manual_change_is_found_and_repaired(published: PriceList, database: str, change: str, example: str) -> None:
    ask(database, change)
    comparison = compare(published, database)
    assert (comparison.different, comparison.examples, comparison.problems) == (1, (example,), ())
    assert show(published, database) is None  # nothing was built: only a full publication looks at every row
    show(published, database, full=True)
    assert compare(published, database) == PublishedComparison(rows=3)


def test_ddl_with_fewer_decimals_differs_where_it_rounds(prices: PriceList, database: str) -> None:
    prices.write_ddl(DDL.replace("NUMERIC(10, 2)", "NUMERIC(10, 1)"))
    prices.build({"a": ("1.10", "red"), "b": ("2.25", "blue")})
    show(prices, database)
    comparison = compare(prices, database)
    assert (comparison.different, comparison.columns, comparison.examples) == (1, (("price", 1),), ("id b: price",))
    assert comparison.problems == (
        'column "price" is decimal(10, 2) in the lake and numeric(10,1) in the DDL, which rounds values: change the DDL',
    )
    prices.write_ddl(DDL)
    show(prices, database, full=True)
    assert compare(prices, database) == PublishedComparison(rows=2)


def test_dropped_column_a_dropped_key_and_a_dropped_table(published: PriceList, database: str) -> None:
    ask(database, "ALTER TABLE prices DROP COLUMN price")
    assert compare(published, database).problems[0].startswith('column "price" is missing in Postgres')
    show(published, database)
    assert compare(published, database) == PublishedComparison(rows=3)
    ask(database, "ALTER TABLE prices DROP CONSTRAINT prices_pkey; INSERT INTO prices (id, price) VALUES ('a', 7)")
    comparison = compare(published, database)
    assert comparison.problems == (
        'the primary key is () in Postgres and (id) in the DDL: ALTER TABLE "prices" ADD PRIMARY KEY ("id");',
    )
    with pytest.raises(PublishError, match="primary key"):
        show(published, database)
    show(published, database, full=True)
    assert compare(published, database) == PublishedComparison(rows=3)
    ask(database, "DROP TABLE prices")
    comparison = compare(published, database)
    assert (comparison.different, comparison.problems) == (3, ("not found in Postgres: table prices",))
    show(published, database, full=True)
    assert compare(published, database) == PublishedComparison(rows=3)


def test_backup_of_postgres_is_behind_and_is_caught_up(published: PriceList, database: str) -> None:
    ask(database, "CREATE TABLE saved AS SELECT * FROM prices; CREATE TABLE saved_progress AS SELECT * FROM headrace_published")
    published.build({"a": None, "b": ("9.00", "blue"), "d": ("4.40", "red")})
    show(published, database)
    assert compare(published, database) == PublishedComparison(rows=3)
    ask(database, "DELETE FROM prices; INSERT INTO prices SELECT * FROM saved")
    ask(database, "DELETE FROM headrace_published; INSERT INTO headrace_published SELECT * FROM saved_progress")
    comparison = compare(published, database)
    assert comparison.problems == ("Postgres has build 1, and the lake has build 2",)
    assert comparison.examples == ("id a: only in Postgres", "id b: price", "id d: only in the lake")
    show(published, database)
    assert compare(published, database) == PublishedComparison(rows=3)


def test_rows_restored_without_their_progress_are_found_and_repaired(published: PriceList, database: str) -> None:
    ask(database, "CREATE TABLE saved AS SELECT * FROM prices")
    published.build({"a": None, "b": ("9.00", "blue"), "d": ("4.40", "red")})
    show(published, database)
    ask(database, "DELETE FROM prices; INSERT INTO prices SELECT * FROM saved")
    assert compare(published, database).different == 3
    show(published, database, full=True)
    assert compare(published, database) == PublishedComparison(rows=3)


def test_lake_restored_from_a_backup_is_published_as_a_whole(published: PriceList, database: str, tmp_path: Path) -> None:
    """Both sides have a build 2, with different content."""
    shutil.copytree(tmp_path / ".headrace", tmp_path / "backup")
    rows = dict(published.rows)
    published.build({"a": ("7.00", "red"), "d": ("4.40", "red")})
    show(published, database)
    shutil.rmtree(tmp_path / ".headrace")
    shutil.move(tmp_path / "backup", tmp_path / ".headrace")
    published.rows = rows
    published.build({"b": ("8.00", "blue")})
    comparison = compare(published, database)
    assert comparison.problems == ("Postgres has build 2 of another history of the table, and the lake has build 2",)
    assert comparison.examples == ("id a: price", "id b: price", "id d: only in Postgres")
    show(published, database)
    assert compare(published, database) == PublishedComparison(rows=3)
    published.build({"e": ("5.00", "red")})
    show(published, database)
    assert compare(published, database) == PublishedComparison(rows=4)


def test_publish_does_not_change_a_foreign_table(prices: PriceList, database: str) -> None:
    ask(database, "CREATE TABLE prices (id TEXT PRIMARY KEY, note TEXT); INSERT INTO prices VALUES ('x', 'mine')")
    prices.build(THREE)
    with pytest.raises(PublishError, match='column "price" is missing') as caught:
        show(prices, database)
    assert 'ALTER TABLE "prices" ADD COLUMN "price" numeric(10,2)' in caught.value.next_step
    assert ask(database, "SELECT * FROM prices") == [("x", "mine")]


def test_ddl_with_a_foreign_key_json_and_keywords_can_be_compared(prices: PriceList, database: str) -> None:
    ask(database, "CREATE TABLE colours (name TEXT PRIMARY KEY); INSERT INTO colours VALUES ('red'), ('blue'), ('green')")
    prices.write_ddl(
        "CREATE TABLE prices (id TEXT PRIMARY KEY, price JSON, colour TEXT REFERENCES colours (name),"
        ' "order" BIGINT DEFAULT 7, double TEXT GENERATED ALWAYS AS (id || id) STORED)'
    )
    prices.build(THREE)
    show(prices, database)
    assert compare(prices, database) == PublishedComparison(rows=3)
    ask(database, "UPDATE prices SET price = '9' WHERE id = 'b'; ALTER TABLE prices DROP COLUMN \"order\"")
    comparison = compare(prices, database)
    assert comparison.problems == (
        'column "order" is missing in Postgres: ALTER TABLE "prices" ADD COLUMN "order" bigint DEFAULT 7;',
    )
    assert comparison.examples == ("id b: price",)
    show(prices, database, full=True)
    assert compare(prices, database) == PublishedComparison(rows=3)


def test_status_says_for_how_long_postgres_is_behind(published: PriceList, database: str) -> None:
    now = datetime.now(timezone.utc) + timedelta(minutes=2)

    def status() -> tuple[int | None, str]:
        (status,) = read_published(database, [published.published], catalog=published.catalog, now=now)
        return status.build_id, status.state

    assert status() == (1, "fresh")
    published.build({"d": ("4.40", "red")})
    assert status() == (1, "behind")
    show(published, database)
    assert status() == (2, "fresh")
