"""Expectations as columns: a row is measured once, where it is written, and a row that fails is set apart.

What every small build asks of Spark is asked as SQL: a tree of Column objects takes calls to Java for each of its nodes.
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
    """What expectations found in few rows: the rows that go on, and those to quarantine as JSON with every reason."""

    results: tuple[CheckedExpectation, ...]
    good: pa.Table
    refused: pa.Table


@dataclass(frozen=True)
class Measured:
    """Rows that carry, for each expectation, whether they fail it."""

    rows: DataFrame
    columns: tuple[str, ...]
    expectations: tuple[Expectation, ...]
    unshown: tuple[str, ...] = ()

    @property
    def good(self) -> DataFrame:
        """The rows that go on: those that fail nothing that drops or quarantines."""
        out = [F.col(name) for name, each in self._flags() if each.otherwise in ("drop", "quarantine")]
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
        """Whether a row that fails an expectation goes to the quarantine."""
        return bool(self._quarantining())

    @property
    def is_refused(self) -> str:
        """SQL for whether a row goes to the quarantine."""
        return _any_of(self._quarantining()) or "false"

    @property
    def refused_json(self) -> str:
        """SQL for a row as the quarantine keeps it."""
        return self._as_json(_WITH_NULLS)

    @property
    def reasons(self) -> Column:
        """Every reason why a row goes to the quarantine."""
        reasons = (F.when(F.col(name), F.lit(each.sentence)) for name, each in self._quarantining())
        return F.concat_ws(REASONS, *reasons)

    @property
    def reported(self) -> DataFrame:
        """The rows with what `read_report` reads: rows that fail an expectation carry themselves as JSON.

        One query yields rows and report, so few rows need no second one.
        """
        flags = self._flags()
        columns = []
        if flags:
            columns.append(f"CASE WHEN {_any_of(flags)} THEN {self._as_json(EXACT_JSON)} END AS `{_SHOWN}`")
        if self.can_refuse:
            columns.append(f"CASE WHEN {self.is_refused} THEN {self.refused_json} END AS `{_REFUSED}`")
        return derive(self.rows, ("reported", *columns), lambda rows: rows.selectExpr("*", *columns)) if columns else self.rows

    def read_report(self, rows: pa.Table, *, also: Sequence[str] = ()) -> RowReport:
        """Return what the expectations found in `reported` rows: the same as `read_metrics`, `good` and `refused` give.

        `also` are more columns of the rows that go on.
        """
        results = []
        passes = pa.repeat(pa.scalar(True), rows.num_rows)
        reasons: list[list[str]] = [[] for _ in range(rows.num_rows)]
        for name, expectation in self._flags():
            failed = rows[name]
            shown = rows[_SHOWN].filter(failed).to_pylist()
            results.append(
                CheckedExpectation(
                    expectation.sentence, expectation.otherwise, rows.num_rows, len(shown), max(shown) if shown else None
                )
            )
            if expectation.otherwise in ("drop", "quarantine") and shown:
                passes = pc.and_(passes, pc.invert(failed))
            if expectation.otherwise == "quarantine" and shown:
                for index in pc.indices_nonzero(failed).to_pylist():
                    reasons[index].append(expectation.sentence)
        kafka = [name for name in self.columns if name.startswith("kafka_")]
        is_refused = pa.array([bool(each) for each in reasons], pa.bool_())
        refused = rows.filter(is_refused)
        return RowReport(
            tuple(results),
            good=rows.select([*self.columns, *also]).filter(passes),
            refused=pa.table(
                {
                    "row": refused[_REFUSED] if _REFUSED in rows.column_names else pa.array([], pa.string()),
                    "reason": pa.array([REASONS.join(each) for each in reasons if each], pa.string()),
                    **{name: refused[name] for name in kafka},
                }
            ),
        )

    def metrics(self) -> list[Column]:
        """Return the aggregates that `read_metrics` understands, to be computed in a pass that is made anyway."""
        metrics, shown = [F.count(F.lit(1)).alias(_CHECKED)], self._as_json(EXACT_JSON)
        for index, (name, _) in enumerate(self._flags()):
            metrics.append(F.expr(f"count_if(`{name}`)").alias(_FAILED.format(index)))
            metrics.append(F.expr(f"max(CASE WHEN `{name}` THEN {shown} END)").alias(_SAMPLE.format(index)))
        return metrics

    def read_metrics(self, values: Mapping[str, object]) -> tuple[CheckedExpectation, ...]:
        """Return what came of the aggregates."""
        checked = rows_in(values)
        found = []
        for index, each in enumerate(self.expectations):
            failed = int(str(values[_FAILED.format(index)]))
            sample = values[_SAMPLE.format(index)]
            found.append(
                CheckedExpectation(each.sentence, each.otherwise, checked, failed, None if sample is None else str(sample))
            )
        return tuple(found)

    @property
    def _shown(self) -> list[str]:
        """The columns that people see of a row which fails."""
        return [name for name in self.columns if name not in self.unshown]

    def _flags(self) -> list[tuple[str, Expectation]]:
        return [(f"__bad_{index}", each) for index, each in enumerate(self.expectations)]

    def _quarantining(self) -> list[tuple[str, Expectation]]:
        return [(name, each) for name, each in self._flags() if each.otherwise == "quarantine"]

    def _as_json(self, options: Mapping[str, str]) -> str:
        """Return SQL for a row as JSON."""
        columns = ", ".join(f"`{name}`" for name in self._shown)
        return f"to_json(struct({columns}), {json_options(options)})"


def _any_of(flags: Sequence[tuple[str, Expectation]]) -> str:
    """Return SQL for whether a row fails any of some expectations."""
    return " OR ".join(f"`{name}`" for name, _ in flags)


def rows_in(values: Mapping[str, object]) -> int:
    """Return how many rows were measured."""
    return int(str(values[_CHECKED]))


def measure(
    rows: DataFrame, expectations: Sequence[Expectation], *, hidden: Sequence[str] = (), unshown: Sequence[str] = ()
) -> Measured:
    """Return the rows with a verdict for each expectation. A condition that is null is not met.

    `hidden` columns are left out of the rows that go on, and `unshown` ones of what people see of a row that fails.
    """
    columns = tuple(name for name in rows.columns if name not in hidden)
    verdicts = [
        f"NOT coalesce(CAST(({each.that}\n) AS BOOLEAN), false) AS `__bad_{index}`"  # a condition may end with a comment
        for index, each in enumerate(expectations)
    ]
    measured = derive(rows, ("measured", *verdicts), lambda rows: rows.selectExpr("*", *verdicts)) if verdicts else rows
    return Measured(measured, columns, tuple(expectations), tuple(unshown))


def check_results(table: LayerTable, results: Sequence[CheckedExpectation]) -> None:
    """Raise a QualityError where rows fail an expectation that does not allow it; nothing has been published then."""
    for result, expectation in zip(results, table.expectations, strict=True):
        if result.otherwise == "fail" and result.failed:
            rows = count_of(result.failed, "row")
            raise QualityError(
                results=tuple(results),
                what=f'"{expectation.sentence}" is not true of {rows} of {result.checked:,}: {expectation.that}',
                where=f"{table.place.label}:{expectation.line}",
                next_step=f"Nothing was published. One of them: {result.sample}\n"
                "Fix the input or the query, or write otherwise: quarantine to set such rows aside.",
            )
