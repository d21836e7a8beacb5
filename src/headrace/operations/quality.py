"""Report the expectations of a pipeline: on the current rows, and in each build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.iceberg.catalog.tables import count_rows, find_catalog, load_table
from headrace.iceberg.ledgers.build import read_build
from headrace.iceberg.metadata.quarantine import QUARANTINE, count_quarantined_for
from headrace.operations.failing_rows import count_failing
from headrace.quality.results import read_results
from headrace.settings import Settings
from headrace.spec.model.layers import OnFailure
from headrace.spec.model.pipeline import Pipeline

_BARS = "▁▂▃▄▅▆▇█"
_TREND_BUILDS = 12


@dataclass(frozen=True)
class ExpectationReport:
    """An expectation on the current rows and in the last build.

    Of the `rows` in the table, `failing` fail it now; None if only Spark can evaluate it. It put `quarantined` rows into the
    quarantine. In the last build, `build_id`, `last_failed` of `last_checked` rows failed it; None before the first build with
    it. `refused_failed` is the number of rows that failed it in a later, refused build. `trend` has one bar per build.
    """

    table: str
    sentence: str
    condition: str
    on_failure: OnFailure
    rows: int
    failing: int | None
    quarantined: int
    build_id: int
    last_checked: int | None
    last_failed: int | None
    refused_failed: int | None
    trend: str
    sample: str | None


def report_quality(settings: Settings, pipeline: Pipeline) -> tuple[ExpectationReport, ...]:
    """Return a report of each of the pipeline's current expectations, in the order of its tables.

    Figures of the last build come from the table's own entry, as in `headrace status`; the trend covers all builds.
    """
    catalog = find_catalog(settings)
    results = read_results(catalog, pipeline.name)
    quarantine = load_table(catalog, QUARANTINE)
    reports = []
    for table in (table for table in pipeline.tables if table.expectations):
        stored = load_table(catalog, table.table)
        entry, failing = read_build(stored), count_failing(table, stored)
        checked = {result.sentence: result for result in entry.expectations}
        sentences = [expectation.sentence for expectation in table.expectations]
        quarantined = count_quarantined_for(quarantine, str(table.table), sentences)
        for expectation in table.expectations:
            sentence = expectation.sentence
            history = [row for row in results if row["table_name"] == str(table.table) and row["expectation"] == sentence]
            refused = [row for row in history if not row["published"] and int(str(row["build_id"])) > entry.build_id]
            samples = [str(row["sample"]) for row in history if row["sample"] is not None]
            counts = [(int(str(row["rows_checked"])), int(str(row["rows_failed"]))) for row in history]
            last = checked.get(sentence)
            reports.append(
                ExpectationReport(
                    table=str(table.table),
                    sentence=sentence,
                    condition=expectation.that,
                    on_failure=expectation.on_failure,
                    rows=count_rows(stored),
                    failing=failing[sentence],
                    quarantined=quarantined.get(sentence, 0),
                    build_id=entry.build_id,
                    last_checked=last.checked if last else None,
                    last_failed=last.failed if last else None,
                    refused_failed=int(str(refused[-1]["rows_failed"])) if refused else None,
                    trend=draw_trend(counts[-_TREND_BUILDS:]),
                    sample=samples[-1] if samples else None,
                )
            )
    return tuple(reports)


def draw_trend(counts: Sequence[tuple[int, int]]) -> str:
    """Return the share of failing rows per build as bars, relative to the worst build."""
    shares = [failed / checked if checked else 0.0 for checked, failed in counts]
    worst = max(shares, default=0.0)
    if not worst:
        return _BARS[0] * len(shares)
    return "".join(_BARS[round(share / worst * (len(_BARS) - 1))] for share in shares)
