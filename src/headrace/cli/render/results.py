"""How results look on a terminal, and as JSON or CSV where a script reads them."""

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
from headrace.serving.values import as_text, is_number, print_json
from headrace.terminal import data_text

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.app.demo import Results
    from headrace.app.manual_change import Seen
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
        writer.writerows([as_text(value, null="") for value in row.values()] for row in rows.to_pylist())
    else:
        table = Table()
        for field in rows.schema:
            table.add_column(data_text(field.name), justify="right" if is_number(str(field.type)) else "left", overflow="fold")
        for row in rows.to_pylist():
            table.add_row(*(data_text(as_text(value, null="null")) for value in row.values()))
        console.print(table)
        console.print(count_of(rows.num_rows, "row"), highlight=False)


def nothing_to_build(pipeline: Pipeline) -> str:
    return f"{pipeline.name} has no layer tables: there is nothing to build"


def show_plan(
    console: Console,
    plans: Sequence[TablePlan],
    *,
    pipeline: Pipeline,
    as_json: bool,
    explained: Mapping[TableName, Explanation] | None = None,
) -> None:
    """Print what a build would do; with `explained`, also how and why."""
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
    table = Table("table", "kind", "what a build does", "reads", "why")
    does = {"nothing": "nothing", "increment": "what changed", "refresh": "all rows anew"}
    for plan in plans:
        reads = [_reading(plan, name) for name in plan.table.inputs]
        why = (*plan.why, *_upkeep(plan).values())
        table.add_row(str(plan.table.table), plan.table.kind, does[plan.action], "\n".join(reads), "\n".join(why))
    console.print(table)


def _upkeep(plan: TablePlan) -> dict[str, str]:
    """Return how the keys of an aggregate are maintained; nothing for other tables.

    Whether sums and averages are of floating point, only a build can tell: it stores states where they are not.
    """
    from headrace.spec.sql.aggregates import Recomputed, decompose

    if plan.table.kind != "aggregate":
        return {}
    found = decompose(plan.table)
    if isinstance(found, Recomputed):
        return {"upkeep": f"recomputes touched keys: {found.reason}"}
    if plan.has_states or not plan.entry.build_id:
        return {"upkeep": "adds changed rows to stored states"}
    return {"upkeep": "recomputes touched keys: no states are stored, as for sums and averages of floating point"}


def show_report(report: TableReport) -> None:
    """Print what became of a table, for an orchestrator."""
    print_json(dataclasses.asdict(report))


def _reading(plan: TablePlan, name: TableName) -> str:
    since, until = plan.since[name].position, plan.until[name].position
    if name not in plan.table.followed:
        return f"{name} as it is"
    if plan.action == "refresh":
        return f"{name} whole"
    if since == until:
        return f"{name}, what this build changes" if name in plan.after else f"{name}, nothing new"
    return f"{name} after {since}"


def show_quality(console: Console, found: Sequence[ExpectationReport], *, pipeline: Pipeline, as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(each) for each in found])
        return
    if not found:
        why = "its tables have no expect: on top" if pipeline.tables else "it has no layer tables, which have them"
        console.print(f"{pipeline.name} has no expectations: {why}", highlight=False)
        return
    _show_expectations(console, found)
    for each in found:
        if each.sample:
            console.print(f"\n{each.table}: {each.sentence}", style="bold", highlight=False, markup=False)
            console.print(f"  {each.sample}", highlight=False, markup=False, soft_wrap=True)


def _show_expectations(console: Console, found: Sequence[ExpectationReport]) -> None:
    table = Table("table", "expectation", "otherwise")
    for column in ("rows in the table", "failing of them", "quarantined", "failing in the last build", "trend of builds"):
        table.add_column(column, justify="right")
    for each in found:
        share = f"{each.last_failed:,} of {each.last_checked:,}" if each.last_checked is not None else "not yet"
        if each.refused_failed is not None:
            share += f"; the next was refused: {each.refused_failed:,}"
        failing = "not known" if each.failing is None else f"{each.failing:,}"
        figures = (f"{each.rows:,}", failing, f"{each.quarantined:,}", share, each.trend)
        table.add_row(each.table, data_text(each.sentence), each.otherwise, *figures)
    console.print(table)


def show_demo(console: Console, results: Results, *, settings: Settings, pipeline: Pipeline) -> None:
    for one in results.shown:
        console.print(f"\n{one.about}", style="bold", highlight=False)
        console.print(f'headrace query "{one.sql}"', style="dim", highlight=False, markup=False, soft_wrap=True)
        show_rows(console, one.answer)
    console.print("\nThe lake against the topic, offset by offset", style="bold")
    show_verified(console, results.verified, as_json=False)
    failing = [each for each in results.quality if each.last_failed]
    if results.quality:
        console.print("\nWhat the expectations found", style="bold")
        console.print(f"headrace quality {pipeline.name}", style="dim", highlight=False)
        if failing:
            _show_expectations(console, failing)
        count = len(results.quality) - len(failing)
        other = "other " if failing else ""
        console.print(f"{count_of(count, f'{other}expectation')} hold{'s' if count == 1 else ''} of every row", highlight=False)
    console.print(f"\nThe tables are in {settings.warehouse}", highlight=False, soft_wrap=True)
    more = f"headrace lineage {pipeline.name}" if pipeline.tables else f"headrace commits {pipeline.name}"
    console.print(f"Next: {more}   headrace serve   headrace run {pipeline.name}", highlight=False)


def show_seen(console: Console, seen: Seen, *, pipeline: Pipeline) -> None:
    console.print("\nA row that was changed by hand", style="bold")
    console.print(
        f'headrace psql {pipeline.name} -c "{seen.change}"', style="dim", highlight=False, markup=False, soft_wrap=True
    )
    console.print(seen.said, highlight=False, markup=False)
    console.print(f'headrace query "{seen.see}"', style="dim", highlight=False, markup=False, soft_wrap=True)
    show_rows(console, seen.answer)
    console.print(f"The lake had it {seen.seconds:.1f} s after psql", highlight=False)


def show_verified(console: Console, verified: Sequence[Verified], compared: Sequence[Compared] = (), *, as_json: bool) -> None:
    if as_json:
        found: list[Verified | Compared] = [*verified, *compared]
        print_json([dataclasses.asdict(one) | {"holds": one.holds} for one in found])
        return
    table = Table()
    table.add_column("stream")
    for column in ("topic", "rows in the table", "quarantined", "waiting", "missing", "doubled", "unlogged"):
        table.add_column(column, justify="right")
    for one in verified:
        numbers = (one.in_topic, one.landed, one.quarantined, one.waiting, one.missing, one.doubled, one.unlogged)
        table.add_row(one.label, *(f"{number:,}" for number in numbers))
    console.print(table)
    for one in verified:
        if one.erased:
            console.print(
                f"{one.label}: {count_that_are(one.erased, 'message')} of people who were erased from the lake", highlight=False
            )
        if one.earlier:
            console.print(
                f"{one.label}: {count_of(one.earlier, 'row')} more from an earlier topic of this name", highlight=False
            )
        for example in one.examples:
            console.print(example, highlight=False, markup=False, soft_wrap=True)
    if compared:
        _show_compared(console, compared)


def _show_compared(console: Console, compared: Sequence[Compared]) -> None:
    table = Table()
    for column in ("in Postgres", "in the lake"):
        table.add_column(column)
    for column in ("rows", "different", "moving"):
        table.add_column(column, justify="right")
    for one in compared:
        table.add_row(one.source, one.table, f"{one.rows:,}", f"{one.different:,}", f"{one.moving:,}")
    console.print(table)
    for one in compared:
        moving = (
            f"{one.source}: {count_of(one.moving, 'row')} changed whenever they were looked at. Stop what changes them first"
        )
        columns = ", ".join(f"{name} in {count_of(count, 'row')}" for name, count in one.columns)
        lines = (
            *(f"{one.source}: {problem}" for problem in one.problems),
            *(f"{one.source}: {example}" for example in one.examples),
            *([f"{one.source}: different are {columns}"] if columns else []),
            *([moving] if one.moving else []),
            *one.notes,
            *([one.next_step] if one.next_step else []),
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
        console.print("the commit log names no such files; without --checkpoint it lists all", highlight=False)
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
    for column in ("part", "state", "what was found"):
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
