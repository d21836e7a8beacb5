"""Build one table without its upstream tables, for a task of an orchestrator, which has the order of tables itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.build.lake import Lake
from headrace.errors import BuildError, QualityError
from headrace.iceberg.catalog.tables import load_table
from headrace.iceberg.ledgers.build import CheckedExpectation, read_build
from headrace.iceberg.schema.partitions import changed_partitions, list_partitions
from headrace.plurals import count_of
from headrace.sessions.building import Outcome, build
from headrace.sessions.retry_policy import RetryPolicy
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline

_DONE = {
    "warn": "counted",
    "drop": "dropped",
    "quarantine": "moved to metadata.quarantine",
    "fail": "build failed: nothing was published",
}


@dataclass(frozen=True)
class TableReport:
    """The report of a table's build for an orchestrator.

    `built` is False if there was nothing to do; `problem` is the reason of a failure. `version` changes when the rows do.
    `changed_partitions` are the partitions in which this build added or removed files.
    """

    table: str
    built: bool
    problem: str | None
    build_id: int
    version: str
    snapshot_id: int
    rows_written: int
    seconds: float
    expectations: tuple[CheckedExpectation, ...]
    partitions: tuple[str, ...]
    changed_partitions: tuple[str, ...]


def build_alone(
    lake: Lake,
    table: LayerTable,
    *,
    full_refresh: bool,
    done: Callable[[Outcome], None],
    retry_policy: RetryPolicy | None = None,
) -> Outcome:
    """Build one table from its current inputs, and return the outcome. `retry_policy` applies to outages.

    Raise a BuildError if an input was never built: the table would lack its rows, and no later build would add the rows of a
    lookup.
    """
    own_tables = {own.table for own in lake.pipeline.tables}
    for name in table.inputs:
        if name in own_tables and not read_build(load_table(lake.catalog, name)).build_id:
            raise BuildError(
                f"its upstream table {name} was never built",
                where=str(table.table),
                next_step=f"Build {name} first, or both: headrace build {lake.pipeline.name} --table {table.table}",
            )
    refresh = {table.table} if full_refresh else ()
    (outcome,) = build(lake, only={table.table}, refresh=refresh, done=done, retry_policy=retry_policy)
    return outcome


def publishing_only(pipeline: Pipeline, table: LayerTable) -> Pipeline:
    """Return the pipeline with this table as the only published one."""
    published = tuple(target for target in pipeline.serving.postgres if target.source == table.table)
    return replace(pipeline, serving=replace(pipeline.serving, postgres=published))


def report_on(lake: Lake, outcome: Outcome) -> TableReport:
    """Return the report of a table's build, from the table's own entry."""
    stored = load_table(lake.catalog, outcome.table.table)
    entry, built = read_build(stored), outcome.built is not None
    changed = built and entry.changed_in == entry.build_id
    return TableReport(
        table=str(outcome.table.table),
        built=built,
        problem=str(outcome.error) if outcome.error else None,
        build_id=entry.build_id,
        version=f"{entry.generation}.{entry.changed_in}",
        snapshot_id=entry.snapshot_id,
        rows_written=entry.rows_written if built else 0,
        seconds=entry.seconds if built else 0.0,
        expectations=tuple(replace(result, sample=None) for result in _results(outcome)),
        partitions=list_partitions(stored) if stored else (),
        changed_partitions=changed_partitions(stored, entry.snapshot_id) if stored and changed else (),
    )


def describe_quality(outcome: Outcome) -> list[str]:
    """Return a line per expectation: of this build, or of the last one if there was nothing to do."""
    if not outcome.table.expectations:
        return ["quality: the table has no expectations"]
    return [f"quality: {_describe(result)}" for result in _results(outcome)]


def _results(outcome: Outcome) -> tuple[CheckedExpectation, ...]:
    if isinstance(outcome.error, QualityError):
        return tuple(result for result in outcome.error.results if isinstance(result, CheckedExpectation))
    if outcome.built:
        return outcome.built.entry.expectations
    return outcome.plan.entry.expectations if outcome.plan and not outcome.error else ()


def _describe(result: CheckedExpectation) -> str:
    failing = f"{result.failed:,} failing" + (f", {_DONE[result.on_failure]}" if result.failed else "")
    return f"{result.sentence}: {count_of(result.checked, 'row')} checked, {failing}"
