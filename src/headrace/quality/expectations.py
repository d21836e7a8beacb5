"""Check expectations as columns: a row is checked once, in the job that writes it, and a failing row is separated.

Conditions of small builds are SQL strings, since a tree of Column objects takes a call to Java for each of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import QualityError
from headrace.iceberg.ledgers.build import CheckedExpectation
from headrace.iceberg.metadata.quarantine import REASONS
from headrace.plurals import count_of
from headrace.spark.columns import named
from headrace.spark.prepared_queries import derive
from headrace.spark.times import EXACT_JSON, json_options
from headrace.spec.model.layers import Expectation, LayerTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FAILED = "__failed_{}"
_CHECKED = "__checked"
_SAMPLE = "__sample_{}"
_SHOWN = "__shown"
_REFUSED = "__refused"


_WITH_NULLS = {**EXACT_JSON, "ignoreNullFields": "false"}


@dataclass(frozen=True)
class RowReport:
    """The result of expectations on a few rows: the good rows, and the rows to quarantine as JSON with every reason."""

    results: tuple[CheckedExpectation, ...]
    good: pa.Table
    refused: pa.Table


@dataclass(frozen=True)
class Measured:
    """Rows with a column per expectation that says whether they fail it."""

    rows: DataFrame
    columns: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    unshown: tuple[str, ...] = ()

    @property
    def good(self) -> DataFrame:
        """The rows to publish, which fail no expectation with `drop` or `quarantine`."""
        out = [F.col(name) for name, expectation in self._flags() if expectation.on_failure in ("drop", "quarantine")]
        rows = self.rows
        for failed in out:
            rows = rows.where(~failed)
        return rows.select(*(named(name) for name in self.columns))

    @property
    def refused(self) -> DataFrame:
        """The rows to quarantine, as JSON, with every reason."""
        return self.rows.where(self.is_refused).select(
            F.expr(self.refused_json).alias("row"),
            self.reasons.alias("reason"),
            *(F.col(name) for name in self.columns if name.startswith("kafka_")),
        )

    @property
    def can_refuse(self) -> bool:
        """Whether any expectation quarantines the rows that fail it."""
        return bool(self._quarantining())

    @property
    def is_refused(self) -> str:
        """SQL for whether a row is quarantined."""
        return _any_of(self._quarantining()) or "false"

    @property
    def refused_json(self) -> str:
        """SQL for a row as JSON, as the quarantine stores it."""
        return self._as_json(_WITH_NULLS)

    @property
    def reasons(self) -> Column:
        """All reasons why a row is quarantined."""
        reasons = (F.when(F.col(name), F.lit(expectation.sentence)) for name, expectation in self._quarantining())
        return F.concat_ws(REASONS, *reasons)

    @property
    def reported(self) -> DataFrame:
        """The rows with the columns that `read_report` reads: failing rows contain themselves as JSON.

        One query returns rows and report, so a few rows need no second query.
        """
        flags = self._flags()
        columns = []
        if flags:
            columns.append(f"CASE WHEN {_any_of(flags)} THEN {self._as_json(EXACT_JSON)} END AS `{_SHOWN}`")
        if self.can_refuse:
            columns.append(f"CASE WHEN {self.is_refused} THEN {self.refused_json} END AS `{_REFUSED}`")
        return derive(self.rows, ("reported", *columns), lambda rows: rows.selectExpr("*", *columns)) if columns else self.rows

    def read_report(self, rows: pa.Table, *, also: Sequence[str] = ()) -> RowReport:
        """Return the result of the expectations on `reported` rows: the same as `read_metrics`, `good` and `refused` return.

        `also` are further columns of the good rows.
        """
        results = []
        passes = pa.repeat(pa.scalar(True), rows.num_rows)
        reasons: list[list[str]] = [[] for _ in range(rows.num_rows)]
        for name, expectation in self._flags():
            failed = rows[name]
            shown = rows[_SHOWN].filter(failed).to_pylist()
            results.append(
                CheckedExpectation(
                    expectation.sentence, expectation.on_failure, rows.num_rows, len(shown), max(shown) if shown else None
                )
            )
            if expectation.on_failure in ("drop", "quarantine") and shown:
                passes = pc.and_(passes, pc.invert(failed))
            if expectation.on_failure == "quarantine" and shown:
                for index in pc.indices_nonzero(failed).to_pylist():
                    reasons[index].append(expectation.sentence)
        kafka = [name for name in self.columns if name.startswith("kafka_")]
        is_refused = pa.array([bool(row_reasons) for row_reasons in reasons], pa.bool_())
        refused = rows.filter(is_refused)
        return RowReport(
            tuple(results),
            good=rows.select([*self.columns, *also]).filter(passes),
            refused=pa.table(
                {
                    "row": refused[_REFUSED] if _REFUSED in rows.column_names else pa.array([], pa.string()),
                    "reason": pa.array([REASONS.join(row_reasons) for row_reasons in reasons if row_reasons], pa.string()),
                    **{name: refused[name] for name in kafka},
                }
            ),
        )

    def metrics(self) -> list[Column]:
        """Return the aggregates that `read_metrics` reads, for a Spark job that runs anyway."""
        metrics, shown = [F.count(F.lit(1)).alias(_CHECKED)], self._as_json(EXACT_JSON)
        for index, (name, _) in enumerate(self._flags()):
            metrics.append(F.expr(f"count_if(`{name}`)").alias(_FAILED.format(index)))
            metrics.append(F.expr(f"max(CASE WHEN `{name}` THEN {shown} END)").alias(_SAMPLE.format(index)))
        return metrics

    def read_metrics(self, values: Mapping[str, object]) -> tuple[CheckedExpectation, ...]:
        """Return the results of the expectations from the values of the aggregates."""
        checked = rows_in(values)
        results = []
        for index, expectation in enumerate(self.expectations):
            failed = int(str(values[_FAILED.format(index)]))
            sample = values[_SAMPLE.format(index)]
            results.append(
                CheckedExpectation(
                    expectation.sentence, expectation.on_failure, checked, failed, None if sample is None else str(sample)
                )
            )
        return tuple(results)

    @property
    def _shown(self) -> list[str]:
        """The columns of a failing row that samples show."""
        return [name for name in self.columns if name not in self.unshown]

    def _flags(self) -> list[tuple[str, Expectation]]:
        return [(f"__bad_{index}", expectation) for index, expectation in enumerate(self.expectations)]

    def _quarantining(self) -> list[tuple[str, Expectation]]:
        return [(name, expectation) for name, expectation in self._flags() if expectation.on_failure == "quarantine"]

    def _as_json(self, options: Mapping[str, str]) -> str:
        """Return SQL for a row as JSON."""
        columns = ", ".join(f"`{name}`" for name in self._shown)
        return f"to_json(struct({columns}), {json_options(options)})"


def _any_of(flags: Sequence[tuple[str, Expectation]]) -> str:
    """Return SQL for whether a row fails any of these expectations."""
    return " OR ".join(f"`{name}`" for name, _ in flags)


def rows_in(values: Mapping[str, object]) -> int:
    """Return the number of checked rows."""
    return int(str(values[_CHECKED]))


def measure(
    rows: DataFrame, expectations: Sequence[Expectation], *, hidden: Sequence[str] = (), unshown: Sequence[str] = ()
) -> Measured:
    """Return the rows with a flag for each expectation. A row fails a condition that is null.

    `hidden` columns are left out of the good rows, and `unshown` columns of the samples of failing rows.
    """
    columns = tuple(name for name in rows.columns if name not in hidden)
    verdicts = [
        f"NOT coalesce(CAST(({expectation.that}\n) AS BOOLEAN), false) AS `__bad_{index}`"  # a condition may end with a comment
        for index, expectation in enumerate(expectations)
    ]
    measured = derive(rows, ("measured", *verdicts), lambda rows: rows.selectExpr("*", *verdicts)) if verdicts else rows
    return Measured(measured, columns, tuple(expectations), tuple(unshown))


def check_results(table: LayerTable, results: Sequence[CheckedExpectation]) -> None:
    """Raise a QualityError if rows fail an expectation with `on_failure: fail`. Call it before anything is published."""
    for result, expectation in zip(results, table.expectations, strict=True):
        if result.on_failure == "fail" and result.failed:
            rows = count_of(result.failed, "row")
            raise QualityError(
                results=tuple(results),
                what=f'{rows} of {result.checked:,} failed the expectation "{expectation.sentence}": {expectation.that}',
                where=f"{table.place.label}:{expectation.line}",
                next_step=f"Nothing was published. Example: {result.sample}\n"
                "Fix the input or the query, or write on_failure: quarantine to quarantine such rows.",
            )
