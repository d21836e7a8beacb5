"""Fuzzy matching on frames: normalised values, blocks and confidence."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pytest

from headrace.build.entities import alike
from headrace.build.entities.alike import PAIRS, comparable, compare_all, confidence, share_block
from headrace.build.entities.levels import LEVELS
from headrace.build.entities.names import NODE
from headrace.errors import BuildError
from headrace.spec.model.fuzzy import HOW, Block, Comparison, Fuzzy, How


@pytest.mark.parametrize(
    ("how", "written", "wanted"),
    [
        ("exact", " A ", " A "),
        ("exact", "", None),
        ("exact", 7, "7"),
        ("name", "  Zo\u00eb \t  M\u00dcLLER ", "zoe muller"),
        ("name", "Zoe\u0308", "zoe"),
        ("name", " ", None),
        ("email", " Ann.Lee+news@Gmail.com", "annlee@gmail.com"),
        ("email", "ann", None),
        ("phone", "+1 (415) 555-2671", "14155552671"),
        ("phone", "none", None),
        ("date", "1990-02-28", "1990-02-28"),
        ("date", "28 Feb", None),
        ("date", date(1990, 2, 28), "1990-02-28"),
        ("date", datetime(1990, 2, 28, 23, 59), "1990-02-28"),
    ],
)
def test_values_are_normalised_for_comparison(how: How, written: object, wanted: str | None) -> None:
    fuzzy = Fuzzy((Comparison("value", how),), (Block(("value",)),), 6.0)
    assert comparable(pl.DataFrame({"value": [written]}), fuzzy)["c0"].to_list() == [wanted]


def test_missing_value_makes_no_block() -> None:
    fuzzy = Fuzzy((Comparison("name", "name"),), (Block(("name", "city")), Block(("zip",))), 6.0)
    there = pl.DataFrame(
        {"name": ["Ann", "Ann", None, "Bob"], "city": ["Ulm", None, None, "Rom"], "zip": [None, None, "", "1"]},
        schema={"name": pl.String, "city": pl.String, "zip": pl.String},
    )
    came = pl.DataFrame({"name": ["ANN", None], "city": ["Ulm", None], "zip": ["1", ""]})
    assert share_block(there, came, fuzzy).to_list() == [True, False, False, True]


def test_only_records_that_share_a_block_are_weighed() -> None:
    seen: list[pl.DataFrame] = []

    def score(records: pl.DataFrame) -> pl.DataFrame:
        seen.append(records)
        return PAIRS.to_frame()

    fuzzy = Fuzzy((Comparison("name", "name"),), (Block(("city",)),), 6.0)
    records = pl.DataFrame({NODE: [0, 1, 2, 3], "id": ["d", "c", "b", "a"], "name": ["x"] * 4, "city": ["1", "2", "1", None]})
    compare_all(records, fuzzy, keys=["id"], score=score)
    compare_all(records.head(2), fuzzy, keys=["id"], score=score)
    (weighed,) = seen
    assert weighed[NODE].to_list() == [2, 0], "in the order of their keys"


def test_block_with_too_many_pairs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "MOST_PAIRS", 5)
    fuzzy = Fuzzy((Comparison("name", "name"),), (Block(("city",)),), 6.0)
    records = pl.DataFrame({NODE: range(4), "id": range(4), "name": ["x"] * 4, "city": ["Ulm"] * 4})
    with pytest.raises(BuildError, match=r"block_on \[city\] yields 6"):
        compare_all(records, fuzzy, keys=["id"], score=lambda _: PAIRS.to_frame())


def test_confidence_is_the_best_pair_weight() -> None:
    pairs = pl.DataFrame([(0, 1, 12.346), (1, 2, 8.0), (3, 4, 120.0)], schema=PAIRS, orient="row")
    weights = confidence(6, exact=(pl.Series([2]), pl.Series([5])), pairs=pairs)
    assert weights.to_list() == [Decimal(weight) for weight in ("12.35", "12.35", "100.00", "99.99", "99.99", "100.00")]


@pytest.mark.parametrize("how", HOW)
def test_levels_are_complete(how: How) -> None:
    levels = LEVELS[how]
    assert levels[-1].test == "else"
    assert sum(level.m for level in levels) == pytest.approx(1)
    assert sum(level.u for level in levels) == pytest.approx(1)
    assert [level.m / level.u for level in levels] == sorted((level.m / level.u for level in levels), reverse=True)
