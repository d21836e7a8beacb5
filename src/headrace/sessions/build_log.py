"""What the log has of builds: one line for each that was committed, and the traceback of each try that failed."""

from __future__ import annotations

import logging
from collections.abc import Collection

from headrace.build.build import Built
from headrace.build.lake import Lake
from headrace.build.plan import TablePlan
from headrace.errors import QualityError
from headrace.iceberg.ledgers.build import CheckedExpectation
from headrace.logs import BUILD, Field, log_failure, log_fields
from headrace.spec.model.layers import LayerTable, OnFailure

_LOG = logging.getLogger(__name__)
_REMOVED: tuple[OnFailure, ...] = ("drop", "quarantine")


def log_built(pipeline: str, built: Built) -> None:
    """Log a build. Bad rows are counted as expectations count them: a row that fails two that remove it counts twice."""
    entry = built.entry
    fields = log_fields(
        pipeline=pipeline,
        table=str(built.plan.table.table),
        build=entry.build_id,
        action=built.plan.action,
        rows_in=entry.rows_processed,
        rows_out=entry.rows_written,
        rows_bad=_count_bad(entry.expectations, _REMOVED),
        seconds=round(built.seconds, 3),
    )
    _LOG.info("built a table", extra=fields)


def log_failed_try(
    lake: Lake, table: LayerTable, plan: TablePlan | None, error: BaseException, *, tries: int, seconds: float
) -> None:
    """Log one try of a build that failed, with its whole traceback in `logs/build.log`."""
    fields: dict[str, Field] = {"pipeline": lake.pipeline.name, "table": str(table.table)}
    if plan is not None:
        fields["build"] = plan.entry.build_id + 1
    if isinstance(error, QualityError):
        results = [result for result in error.results if isinstance(result, CheckedExpectation)]
        fields["rows_in"] = max((result.checked for result in results), default=0)
        fields["rows_bad"] = _count_bad(results, {"fail"})
    fields["seconds"] = round(seconds, 3)
    log_failure(_LOG, lake.settings, BUILD, f"{table.table}: try {tries} failed", error, level=logging.ERROR, **fields)


def _count_bad(results: Collection[CheckedExpectation], kinds: Collection[OnFailure]) -> int:
    return sum(result.failed for result in results if result.on_failure in kinds)
