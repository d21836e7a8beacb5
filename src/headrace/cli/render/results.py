"""Render results for a terminal, and as JSON or CSV for scripts."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from headrace.cli.render.explained import explanation_as_json, show_explained
from headrace.plurals import count_of, count_that_are
from headrace.serving.values import as_text, is_number, nested_json, print_json
from headrace.terminal import data_text

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.app.demo import DemoResults
    from headrace.app.manual_change import ManualChange
    from headrace.build.explain import Explanation
    from headrace.build.plan import TablePlan
    from headrace.operations.compare.compare_with_source import Compared
    from headrace.operations.doctor import Finding, SettingOrigin
    from headrace.operations.quality import ExpectationReport
    from headrace.operations.verify.log_history import LoggedFile
    from headrace.operations.verify.verify import Verified
    from headrace.sessions.one_table import TableReport
    from headrace.settings import Settings
    from headrace.spec import Pipeline, TableName


def show_rows(console: Console, rows: pa.Table, *, as_json: bool = False, as_csv: bool = False) -> None:
    if as_json:
        print_json([{name: row[name] for name in rows.column_names} for row in rows.to_pylist()])
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.column_names)
        writer.writerows([_as_csv(value) for value in row.values()] for row in rows.to_pylist())
    else:
        table = Table()
        for field in rows.schema:
            table.add_column(data_text(field.name), justify="right" if is_number(str(field.type)) else "left", overflow="fold")
        for row in rows.to_pylist():
            table.add_row(*(data_text(as_text(value, null="null")) for value in row.values()))
        console.print(table)
        console.print(count_of(rows.num_rows, "row"), highlight=False)


def _as_csv(value: object) -> str:
    return nested_json(value) if isinstance(value, (list, tuple, dict)) else as_text(value, null="")


def nothing_to_build(pipeline: Pipeline) -> str:
    return f"{pipeline.name} has no layer tables to build"


def show_plan(
    console: Console,
    plans: Sequence[TablePlan],
    *,
    pipeline: Pipeline,
    as_json: bool,
    explained: Mapping[TableName, Explanation] | None = None,
) -> None:
    """Print what a build would do; with `explained`, also its strategy and reads."""
    details = explained or {}
    if as_json:
        print_json(
            [
                {
                    "table": str(plan.table.table),
                    "kind": plan.table.kind,
                    "action": plan.action,
                    "why": list(plan.why),
                    **_upkeep(plan),
                    "reads": {
                        str(name): {
                            "from": plan.since[name].position,
                            "to": plan.until[name].position,
                            "snapshot": plan.until[name].snapshot_id,
                        }
                        for name in plan.table.inputs
                    },
                    "next_build": plan.entry.build_id + 1,
                    **({"explained": explanation_as_json(details[plan.table.table])} if plan.table.table in details else {}),
                }
                for plan in plans
            ]
        )
        return
    if not plans:
        console.print(nothing_to_build(pipeline), highlight=False)
        return
    if details:
        show_explained(console, tuple(details.values()))
        return
    has_upkeep = any(plan.table.kind == "aggregate" for plan in plans)
    table = Table("table", "kind", "what a build does", "reads", "why", *(["how keys are updated"] if has_upkeep else []))
    does = {"nothing": "nothing", "increment": "what changed", "refresh": "all rows"}
    for plan in plans:
        reads = [_reading(plan, name) for name in plan.table.inputs]
        upkeep = _upkeep(plan).values() if has_upkeep else ()
        table.add_row(str(plan.table.table), plan.table.kind, does[plan.action], "\n".join(reads), "\n".join(plan.why), *upkeep)
    console.print(table)


def _upkeep(plan: TablePlan) -> dict[str, str]:
    """Return how an aggregate is updated; empty for other tables.

    Only a build knows whether sums and averages are of floating point; it stores states if they are not.
    """
    from headrace.spec.sql.aggregates import Recomputed, decompose

    if plan.table.kind != "aggregate":
        return {}
    decomposed = decompose(plan.table)
    if isinstance(decomposed, Recomputed):
        return {"upkeep": f"recomputes touched keys: {decomposed.reason}"}
    if plan.has_states or not plan.entry.build_id:
        return {"upkeep": "adds changed rows to stored states"}
    return {"upkeep": "recomputes touched keys: no states are stored, as for sums and averages of floating point"}


def show_report(report: TableReport) -> None:
    """Print the result of one table's build as JSON, for an orchestrator."""
    print_json(dataclasses.asdict(report))


def _reading(plan: TablePlan, name: TableName) -> str:
    since, until = plan.since[name].position, plan.until[name].position
    if name not in plan.table.followed:
        return f"{name} as it is"
    if plan.action == "refresh":
        return f"{name}, all rows"
    if since == until:
        return f"{name}, what this build changes" if name in plan.after else f"{name}, nothing new"
    return f"{name} after {since}"


def show_quality(console: Console, reports: Sequence[ExpectationReport], *, pipeline: Pipeline, as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(report) for report in reports])
        return
    if not reports:
        why = "none of its tables declares expect:" if pipeline.tables else "it has no layer tables"
        console.print(f"{pipeline.name} has no expectations: {why}", highlight=False)
        return
    _show_expectations(console, reports)
    for report in reports:
        if report.sample:
            fails = report.failing or report.last_failed or report.refused_failed
            example = f'{report.table}: a row that failed "{report.sentence}"{"" if fails else " in an earlier build"}'
            console.print(f"\n{example}", style="bold", highlight=False, markup=False)
            console.print(f"  {report.sample}", highlight=False, markup=False, soft_wrap=True)


def _show_expectations(console: Console, reports: Sequence[ExpectationReport]) -> None:
    table = Table("table", "expectation", "on failure")
    for column in ("rows now", "failing now", "quarantined", "failed in the last build", "trend of builds"):
        table.add_column(column, justify="right")
    for report in reports:
        share = f"{report.last_failed:,} of {report.last_checked:,}" if report.last_checked is not None else "not built yet"
        if report.refused_failed is not None:
            share += f"; the next build was refused: {report.refused_failed:,}"
        failing = "not known" if report.failing is None else f"{report.failing:,}"
        figures = (f"{report.rows:,}", failing, f"{report.quarantined:,}", share, report.trend)
        table.add_row(report.table, data_text(report.sentence), report.on_failure, *figures)
    console.print(table)
    console.print(
        "now: of the rows in the table. In the last build: of the rows that it checked; several may have had the same key.",
        highlight=False,
    )
    if any(report.failing is None for report in reports):
        console.print(
            "not known: the condition needs Spark, or columns that are not in the table. Only builds count it.", highlight=False
        )


def show_demo(console: Console, results: DemoResults, *, settings: Settings, pipeline: Pipeline) -> None:
    for answered in results.shown:
        console.print(f"\n{answered.about}", style="bold", highlight=False)
        console.print(f'headrace query "{answered.sql}"', style="dim", highlight=False, markup=False, soft_wrap=True)
        show_rows(console, answered.answer)
    console.print("\nThe lake compared with its topics, offset by offset", style="bold")
    show_verified(console, results.verified, as_json=False)
    failing = [report for report in results.quality if report.last_failed]
    if results.quality:
        console.print("\nExpectations", style="bold")
        console.print(f"headrace quality {pipeline.name}", style="dim", highlight=False)
        if failing:
            _show_expectations(console, failing)
        count = len(results.quality) - len(failing)
        other = "other " if failing else ""
        verb = "holds" if count == 1 else "hold"
        console.print(f"{count_of(count, f'{other}expectation')} {verb} for every row", highlight=False)
    console.print(f"\nThe tables are in {settings.warehouse}", highlight=False, soft_wrap=True)
    more = f"headrace lineage {pipeline.name}" if pipeline.tables else f"headrace commits {pipeline.name}"
    console.print(f"Next: {more}   headrace serve   headrace run {pipeline.name}", highlight=False)


def show_manual_change(console: Console, change: ManualChange, *, pipeline: Pipeline) -> None:
    console.print("\nA manual change in psql", style="bold")
    console.print(
        f'headrace psql {pipeline.name} -c "{change.change}"', style="dim", highlight=False, markup=False, soft_wrap=True
    )
    console.print(change.output, highlight=False, markup=False)
    console.print(f'headrace query "{change.query}"', style="dim", highlight=False, markup=False, soft_wrap=True)
    show_rows(console, change.answer)
    console.print(f"The lake had the change {change.seconds:.1f} s after psql: captured, landed and built", highlight=False)


def show_verified(console: Console, verified: Sequence[Verified], compared: Sequence[Compared] = (), *, as_json: bool) -> None:
    if as_json:
        checks: list[Verified | Compared] = [*verified, *compared]
        print_json([dataclasses.asdict(check) | {"holds": check.holds} for check in checks])
        return
    table = Table()
    table.add_column("stream")
    for column in ("topic", "rows in the table", "quarantined", "waiting", "missing", "doubled", "unlogged"):
        table.add_column(column, justify="right")
    for stream in verified:
        numbers = (
            stream.in_topic,
            stream.landed,
            stream.quarantined,
            stream.waiting,
            stream.missing,
            stream.doubled,
            stream.unlogged,
        )
        table.add_row(stream.label, *(f"{number:,}" for number in numbers))
    console.print(table)
    for stream in verified:
        if stream.erased:
            console.print(
                f"{stream.label}: {count_that_are(stream.erased, 'message')} of people erased from the lake", highlight=False
            )
        if stream.earlier:
            console.print(
                f"{stream.label}: {count_of(stream.earlier, 'row')} more from an earlier topic of this name", highlight=False
            )
        for example in stream.examples:
            console.print(example, highlight=False, markup=False, soft_wrap=True)
    if compared:
        _show_compared(console, compared)


def _show_compared(console: Console, compared: Sequence[Compared]) -> None:
    table = Table()
    for column in ("in Postgres", "in the lake"):
        table.add_column(column)
    for column in ("rows", "different", "moving"):
        table.add_column(column, justify="right")
    for comparison in compared:
        table.add_row(
            comparison.source, comparison.table, f"{comparison.rows:,}", f"{comparison.different:,}", f"{comparison.moving:,}"
        )
    console.print(table)
    for comparison in compared:
        rows = count_of(comparison.moving, "row")
        moving = f"{comparison.source}: {rows} changed during every comparison. Stop the writers first"
        columns = ", ".join(f"{name} in {count_of(count, 'row')}" for name, count in comparison.columns)
        lines = (
            *(f"{comparison.source}: {problem}" for problem in comparison.problems),
            *(f"{comparison.source}: {example}" for example in comparison.examples),
            *([f"{comparison.source}: differing columns: {columns}"] if columns else []),
            *([moving] if comparison.moving else []),
            *comparison.notes,
            *([comparison.next_step] if comparison.next_step else []),
        )
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def show_commits(console: Console, files: Sequence[LoggedFile], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    **dataclasses.asdict(file.entry),
                    "state": file.state,
                    "table": file.table,
                    "rows": file.rows,
                    "offsets": {str(partition): list(span) for partition, span in file.offsets.items()},
                }
                for file in files
            ]
        )
        return
    if not files:
        console.print("not found in the commit log; omit --checkpoint to list all files", highlight=False)
        return
    table = Table()
    for column in ("checkpoint", "subtask", "state", "table", "rows", "offsets", "file"):
        table.add_column(column, justify="right" if column in ("checkpoint", "subtask", "rows") else "left", overflow="fold")
    for file in files:
        table.add_row(
            str(file.entry.checkpoint_id),
            str(file.entry.subtask),
            file.state,
            file.table,
            f"{file.rows:,}",
            " ".join(f"{partition}:{first}-{last}" for partition, (first, last) in file.offsets.items()),
            data_text(Path(file.entry.s3_key).name),
        )
    console.print(table)
    committed = sum(file.state == "committed" for file in files)
    console.print(
        f"{count_of(len(files), 'file')}: {committed} committed, {len(files) - committed} orphan or gone", highlight=False
    )


def show_findings(console: Console, findings: Sequence[Finding], origins: Sequence[SettingOrigin], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "findings": [dataclasses.asdict(finding) for finding in findings],
                "settings": [dataclasses.asdict(origin) for origin in origins],
            }
        )
        return
    table = Table()
    for column in ("part", "state", "finding"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(finding.subject, finding.state, data_text(finding.says))
    console.print(table)
    table = Table()
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for origin in origins:
        table.add_row(origin.name, data_text(origin.value), data_text(origin.origin))
    console.print(table)
