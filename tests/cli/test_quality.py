"""The report of `headrace quality` on the current rows and the last build."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from headrace.iceberg.ledgers.build import KEY, CheckedExpectation, read_build
from headrace.operations.quality import report_quality
from headrace.quality.results import CheckedBuild, record_results
from headrace.spec.model.layers import LayerTable
from tests.cli.conftest import Here
from tests.serving.price_list import NAME, PriceList

EXPECTED = """/*
keys: [id]
sequence_by: n
expect:
  the price is known: price IS NOT NULL
  the colour is a word: colour RLIKE '^[a-z]+$'
  only Spark can tell: xxhash64(id) > 0
  the number is there: n IS NOT NULL
  the price is positive: {that: price > 0, on_failure: fail}
*/
SELECT id, price, colour, n FROM shop.events"""


def fill(folder: Path) -> PriceList:
    """Build three prices; the last build checked one row."""
    prices = PriceList(folder)
    (folder / "pipelines/shop/core/prices.sql").write_text(EXPECTED, encoding="utf-8")
    prices.build({"a": ("1.10", "red"), "b": ("2.20", "Blue 7")})
    prices.rows["b"]["price"] = None
    prices.build({"c": ("3.30", "green")})
    table = prices.catalog.load_table(str(NAME))
    results = tuple(
        CheckedExpectation(expectation.sentence, expectation.on_failure, 1, 0) for expectation in layer(prices).expectations
    )
    with table.transaction() as transaction:
        transaction.set_properties({KEY: replace(read_build(table), expectations=results).to_json()})
    return prices


def layer(prices: PriceList) -> LayerTable:
    return prices.pipeline.tables[0]


def test_rows_that_fail_now_are_counted_in_the_table_and_not_in_builds(tmp_path: Path) -> None:
    prices = fill(tmp_path)
    reports = {report.sentence: report for report in report_quality(prices.settings, prices.pipeline)}
    assert {sentence: report.failing for sentence, report in reports.items()} == {
        "the price is known": 1,
        "the colour is a word": 1,
        "only Spark can tell": None,
        "the number is there": None,  # it is not a column of the table
        "the price is positive": 0,
    }
    known = reports["the price is known"]
    assert (known.rows, known.build_id, known.last_checked, known.last_failed, known.refused_failed) == (3, 2, 1, 0, None)
    prices.rows["b"]["price"] = Decimal("2.20")
    prices.build({})
    reports = {report.sentence: report for report in report_quality(prices.settings, prices.pipeline)}
    assert reports["the price is known"].failing == 0


def test_sample_says_whether_it_is_of_an_earlier_build(tmp_path: Path, here: Here) -> None:
    prices = fill(tmp_path)
    failed = [CheckedExpectation("the price is positive", "quarantine", 4, 2, '{"id":"x"}')]
    failed.append(CheckedExpectation("the price is known", "quarantine", 4, 2, '{"id":"y"}'))
    record_results(prices.catalog, prices.settings, "shop", [CheckedBuild(NAME, 1, True, tuple(failed), 1)])
    _, output = here("quality", "shop")
    assert 'shop.prices: a row that failed "the price is positive" in an earlier build\n  {"id":"x"}' in output
    assert 'shop.prices: a row that failed "the price is known"\n  {"id":"y"}' in output


def test_refused_build_is_shown_beside_the_last_one(tmp_path: Path, here: Here) -> None:
    prices = fill(tmp_path)
    refused = (CheckedExpectation("the price is positive", "fail", 4, 2, '{"id":"x"}'),)
    builds = [CheckedBuild(NAME, number, False, refused, time.time_ns() // 1_000) for number in (2, 3)]
    record_results(prices.catalog, prices.settings, "shop", builds)
    report = {listed.sentence: listed for listed in report_quality(prices.settings, prices.pipeline)}["the price is positive"]
    assert (report.last_checked, report.last_failed, report.refused_failed) == (1, 0, 2)
    code, output = here("quality", "shop")
    assert code == 0
    for words in ("rows now", "failing now", "not known", "0 of 1; the next build was refused: 2"):
        assert words in output
    assert "not known: the condition needs Spark, or columns that are not in the table. Only builds count it." in output
    assert 'shop.prices: a row that failed "the price is positive"\n  {"id":"x"}' in output
