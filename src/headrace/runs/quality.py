"""What the expectations of a pipeline found, build by build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.quality.results import read_results
from headrace.settings import Settings
from headrace.spec.pipeline import Pipeline
from headrace.tables.catalog import find_catalog

_BARS = "▁▂▃▄▅▆▇█"
_TREND_BUILDS = 12


@dataclass(frozen=True)
class ExpectationReport:
    """One sentence over all builds, in its newest, and as a row of bars, the highest of which is its worst build."""

    table: str
    sentence: str
    condition: str
    otherwise: str
    checked: int
    failed: int
    last_checked: int | None
    last_failed: int | None
    trend: str
    sample: str | None


def report_quality(settings: Settings, pipeline: Pipeline) -> tuple[ExpectationReport, ...]:
    """Gives back a report of every expectation that the pipeline has now, in the order of its tables."""
    results = read_results(find_catalog(settings), pipeline.name)
    reports = []
    for table in pipeline.tables:
        for each in table.expectations:
            found = [row for row in results if row["table_name"] == str(table.table) and row["expectation"] == each.sentence]
            counts = [(int(str(row["rows_checked"])), int(str(row["rows_failed"]))) for row in found]
            samples = [str(row["sample"]) for row in found if row["sample"] is not None]
            reports.append(
                ExpectationReport(
                    table=str(table.table),
                    sentence=each.sentence,
                    condition=each.that,
                    otherwise=each.otherwise,
                    checked=sum(checked for checked, _ in counts),
                    failed=sum(failed for _, failed in counts),
                    last_checked=counts[-1][0] if counts else None,
                    last_failed=counts[-1][1] if counts else None,
                    trend=draw_trend(counts[-_TREND_BUILDS:]),
                    sample=samples[-1] if samples else None,
                )
            )
    return tuple(reports)


def draw_trend(counts: Sequence[tuple[int, int]]) -> str:
    """Gives back the share of failing rows of each build as a row of bars."""
    shares = [failed / checked if checked else 0.0 for checked, failed in counts]
    worst = max(shares, default=0.0)
    if not worst:
        return _BARS[0] * len(shares)
    return "".join(_BARS[round(share / worst * (len(_BARS) - 1))] for share in shares)
