"""Building one table and none that it reads, which is what a task of an orchestrator does: the orchestrator has the order."""

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
    "count": "counted",
    "drop": "left out",
    "quarantine": "set aside in metadata.quarantine",
    "fail": "which is not allowed: nothing was published",
}


@dataclass(frozen=True)
class TableReport:
    """What an orchestrator is told of a table after its turn.

    `built` says whether there was anything to do, `problem` why it failed. `version` changes when its rows do. Of the
    partitions that it has, `changed_partitions` are those that this build added files to or removed files from.
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
    """Build one table from its inputs as they are, and return the outcome. `retry_policy` says how outages are waited for.

    An input that was never built is a BuildError: without its rows the table would be wrong, and for a lookup nothing would
    mend it later.
    """
    built_here = {each.table for each in lake.pipeline.tables}
    for each in table.inputs:
        if each in built_here and not read_build(load_table(lake.catalog, each)).build_id:
            raise BuildError(
                f"it reads {each}, which was never built",
                where=str(table.table),
                next_step=f"Build that one first, or both: headrace build {lake.pipeline.name} --table {table.table}",
            )
    refresh = {table.table} if full_refresh else ()
    (outcome,) = build(lake, only={table.table}, refresh=refresh, done=done, retry_policy=retry_policy)
    return outcome


def publishing_only(pipeline: Pipeline, table: LayerTable) -> Pipeline:
    """Return the pipeline as if this table were all that it publishes."""
    published = tuple(each for each in pipeline.serving.postgres if each.source == table.table)
    return replace(pipeline, serving=replace(pipeline.serving, postgres=published))


def report_on(lake: Lake, outcome: Outcome) -> TableReport:
    """Return what became of a table, as the table itself has it now."""
    found = load_table(lake.catalog, outcome.table.table)
    entry, built = read_build(found), outcome.built is not None
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
        expectations=tuple(replace(each, sample=None) for each in _results(outcome)),
        partitions=list_partitions(found) if found else (),
        changed_partitions=changed_partitions(found, entry.snapshot_id) if found and changed else (),
    )


def describe_quality(outcome: Outcome) -> list[str]:
    """Return a line for each expectation: of this build, or of the last one where there was nothing to do."""
    if not outcome.table.expectations:
        return ["quality: the table expects nothing"]
    return [f"quality: {_describe(each)}" for each in _results(outcome)]


def _results(outcome: Outcome) -> tuple[CheckedExpectation, ...]:
    if isinstance(outcome.error, QualityError):
        return tuple(each for each in outcome.error.results if isinstance(each, CheckedExpectation))
    if outcome.built:
        return outcome.built.entry.expectations
    return outcome.plan.entry.expectations if outcome.plan and not outcome.error else ()


def _describe(result: CheckedExpectation) -> str:
    failing = f"{result.failed:,} failing" + (f", {_DONE[result.otherwise]}" if result.failed else "")
    return f"{result.sentence}: {count_of(result.checked, 'row')} checked, {failing}"
