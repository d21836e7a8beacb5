"""Expectations as columns: a row is measured once, where it is written, and what fails is told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import QualityError
from headrace.spec.layers import STATE, Expectation, LayerTable
from headrace.tables.build_ledger import CheckedExpectation
from headrace.tables.quarantine import REASONS
from headrace.tables.spark_columns import named
from headrace.tables.spark_times import EXACT_JSON
from headrace.words import count_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FAILED = "__failed_{}"
_CHECKED = "__checked"
_SAMPLE = "__sample_{}"


@dataclass(frozen=True)
class Measured:
    """Rows that carry, for each expectation, whether they fail it."""

    rows: DataFrame
    columns: tuple[str, ...]
    expectations: tuple[Expectation, ...]

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
        flags = [(name, each) for name, each in self._flags() if each.otherwise == "quarantine"]
        reasons = F.concat_ws(REASONS, *(F.when(F.col(name), F.lit(each.sentence)) for name, each in flags))
        anything = F.lit(False)
        for name, _ in flags:
            anything = anything | F.col(name)
        return self.rows.where(anything).select(
            F.to_json(F.struct(*map(named, self._shown)), {**EXACT_JSON, "ignoreNullFields": "false"}).alias("row"),
            reasons.alias("reason"),
            *(F.col(name) for name in self.columns if name.startswith("kafka_")),
        )

    def metrics(self) -> list[Column]:
        """Gives back the aggregates that `read_metrics` understands, to be computed in a pass that is made anyway."""
        metrics = [F.count(F.lit(1)).alias(_CHECKED)]
        for index, (name, _) in enumerate(self._flags()):
            row = F.to_json(F.struct(*map(named, self._shown)), EXACT_JSON)
            metrics.append(F.count(F.when(F.col(name), F.lit(1))).alias(_FAILED.format(index)))
            metrics.append(F.max(F.when(F.col(name), row)).alias(_SAMPLE.format(index)))
        return metrics

    def read_metrics(self, values: Mapping[str, object]) -> tuple[CheckedExpectation, ...]:
        """Gives back what came of the aggregates."""
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
        """The columns that people see of a row which fails: all but its partial states."""
        return [name for name in self.columns if name != STATE]

    def _flags(self) -> list[tuple[str, Expectation]]:
        return [(f"__bad_{index}", each) for index, each in enumerate(self.expectations)]


def rows_in(values: Mapping[str, object]) -> int:
    """Gives back how many rows were measured."""
    return int(str(values[_CHECKED]))


def measure(rows: DataFrame, expectations: Sequence[Expectation]) -> Measured:
    """Gives back the rows with a verdict for each expectation. A condition that is null is not met."""
    columns = tuple(rows.columns)
    verdicts = [
        (~F.coalesce(F.expr(each.that).cast("boolean"), F.lit(False))).alias(f"__bad_{index}")
        for index, each in enumerate(expectations)
    ]
    return Measured(rows.select("*", *verdicts), columns, tuple(expectations))


def check_results(table: LayerTable, results: Sequence[CheckedExpectation]) -> None:
    """Raises a QualityError where rows fail an expectation that does not allow it; nothing has been published then."""
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
