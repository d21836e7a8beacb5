"""Translate a table's `fuzzy` setting to Splink's settings, and name the columns of its results.

Splink gets text columns named c0, c1, …, so that no name from a table's file is part of its SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.build.entities.alike import block_columns
from headrace.build.entities.levels import Level
from headrace.build.entities.weights import Weights
from headrace.spec.model.fuzzy import Fuzzy

if TYPE_CHECKING:
    from splink import SettingsCreator
    from splink.internals.comparison_level_creator import ComparisonLevelCreator

ID = "unique_id"
ID_LEFT, ID_RIGHT = f"{ID}_l", f"{ID}_r"
MARGIN = 1e-6
"""How far below the threshold Splink searches: backends differ in the last bits of a weight.

The final weight is computed from the levels, by the same code for both."""

Similar = Callable[[str, float], "ComparisonLevelCreator"]
"""Returns the level for values of a column whose Jaro-Winkler similarity is at least a limit."""


def gamma(column: str, fuzzy: Fuzzy) -> str:
    """Return Splink's name of a level column: 0 is the last level, and -1 a missing value."""
    return f"gamma_{place(column, fuzzy)}"


def place(column: str, fuzzy: Fuzzy) -> str:
    """Return the name of a column in the result of `alike.comparable`."""
    return f"c{fuzzy.columns.index(column)}"


def compared_pairs(fuzzy: Fuzzy) -> list[str]:
    """Return the columns that a backend returns for each pair."""
    return [ID_LEFT, ID_RIGHT, *(gamma(comparison.column, fuzzy) for comparison in fuzzy.compare)]


def splink_settings(fuzzy: Fuzzy, weights: Weights, *, similar: Similar | None = None) -> SettingsCreator:
    """Return the settings of a linker that weighs the pairs of all blocks."""
    from splink import SettingsCreator, block_on
    from splink import comparison_level_library as levels
    from splink import comparison_library as comparisons

    compare = []
    for comparison in fuzzy.compare:
        column = place(comparison.column, fuzzy)
        tests = (levels.NullLevel(column), *(_level(level, column, similar) for level in weights.levels[comparison.column]))
        compare.append(comparisons.CustomComparison([*tests], output_column_name=column))
    return SettingsCreator(
        link_type="dedupe_only",
        comparisons=list(compare),
        blocking_rules_to_generate_predictions=[block_on(*block_columns(block, fuzzy)) for block in fuzzy.block_on],
        probability_two_random_records_match=weights.chance,
        retain_matching_columns=True,  # without them Splink drops the levels, too
        unique_id_column_name=ID,
    )


def _level(level: Level, column: str, similar: Similar | None) -> ComparisonLevelCreator:
    from splink import ColumnExpression
    from splink import comparison_level_library as levels

    tests: dict[str, Callable[[], ComparisonLevelCreator]] = {
        "equal": lambda: levels.ExactMatchLevel(column),
        "equal_mailbox": lambda: levels.ExactMatchLevel(ColumnExpression(column).regex_extract("^[^@]+")),
        "jaro_winkler": lambda: (similar or levels.JaroWinklerLevel)(column, level.limit),
        "levenshtein": lambda: levels.LevenshteinLevel(column, int(level.limit)),
        "else": levels.ElseLevel,
    }
    return tests[level.test]().configure(m_probability=level.m, u_probability=level.u)
