"""A table's `fuzzy` setting as Splink's settings, and what both of its backends return.

Splink gets text columns called c0, c1, …, so no name from a table's file gets into its SQL.
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
"""How far below the threshold Splink looks: backends differ in the last bits of a weight.

The weight that counts is computed from the levels, in one place for both."""

Similar = Callable[[str, float], "ComparisonLevelCreator"]
"""Return the level for values of a column whose Jaro-Winkler similarity is at least a limit."""


def gamma(column: str, fuzzy: Fuzzy) -> str:
    """Return what Splink calls the column that says which level a pair has: the last is 0, and -1 is a missing value."""
    return f"gamma_{place(column, fuzzy)}"


def place(column: str, fuzzy: Fuzzy) -> str:
    """Return what `alike.comparable` calls a column."""
    return f"c{fuzzy.columns.index(column)}"


def compared_pairs(fuzzy: Fuzzy) -> list[str]:
    """Return the columns that a backend returns for each pair."""
    return [ID_LEFT, ID_RIGHT, *(gamma(each.column, fuzzy) for each in fuzzy.compare)]


def splink_settings(fuzzy: Fuzzy, weights: Weights, *, similar: Similar | None = None) -> SettingsCreator:
    """Return the settings of a linker that weighs the pairs of all blocks."""
    from splink import SettingsCreator, block_on
    from splink import comparison_level_library as levels
    from splink import comparison_library as comparisons

    compare = []
    for each in fuzzy.compare:
        column = place(each.column, fuzzy)
        found = (levels.NullLevel(column), *(_level(level, column, similar) for level in weights.levels[each.column]))
        compare.append(comparisons.CustomComparison([*found], output_column_name=column))
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
