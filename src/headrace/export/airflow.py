"""A pipeline as a DAG of Airflow: one task a table, in the order in which a build has them, layers as groups."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SettingsError, SpecError
from headrace.settings import Settings
from headrace.spec.layers import LayerTable
from headrace.spec.names import IDENTIFIER_RULE, is_identifier
from headrace.spec.pipeline import Pipeline, TableName

_DAG_FILE = Path(__file__).with_name("airflow_dag.py")  # copied, not imported: only Airflow has what it needs
_WRITTEN = "Written by headrace export airflow"
_BLOCK = re.compile(r"# <pipeline>\n.*# </pipeline>\n", re.DOTALL)
_OWN_TASKS = ("start", "land", "end")
_SCHEDULE = re.compile(r"@[a-z]+|[0-9A-Za-z*/,?#-]+( [0-9A-Za-z*/,?#-]+){4}")


@dataclass(frozen=True)
class DagSettings:
    """What the pipeline does not say about its DAG.

    `pipeline` is its name as a command takes it. Without a `schedule` the DAG runs when it is triggered. `land_first` lands all
    there is before anything is built.
    """

    dag_id: str
    pipeline: str
    schedule: str | None = None
    retries: int = 2
    land_first: bool = False


def export_dag(settings: Settings, pipeline: Pipeline, dag: DagSettings, *, into: Path) -> tuple[str, ...]:
    """Writes the DAG of a pipeline to a folder; gives back what there is to say about it.

    Idempotent. A file of that name that was not exported is a SpecError, and stays as it is.
    """
    text = dag_text(pipeline, dag, folder=Path(os.path.relpath(settings.folder, into.resolve())).as_posix())
    path = into / f"{dag.dag_id}.py"
    if path.exists() and _WRITTEN not in path.read_text(encoding="utf-8").split("\n", 1)[0]:
        raise SpecError(
            "the file was not written by headrace export airflow",
            where=str(path),
            next_step="Name another folder or another DAG: --into FOLDER, --dag NAME",
        )
    into.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    tables = "1 table" if len(pipeline.tables) == 1 else f"{len(pipeline.tables)} tables"
    return (f"{path} has {tables}. Next: make {into} Airflow's dags_folder, or copy the file to it.",)


def dag_text(pipeline: Pipeline, dag: DagSettings, *, folder: str) -> str:
    """Gives back the DAG's file, the same for the same pipeline. `folder` is where its commands run, seen from the file.

    A pipeline without tables, and what Airflow would refuse, is an error.
    """
    _check(pipeline, dag)
    tasks = _task_names(pipeline.tables)
    block = [
        "# <pipeline>",
        f"PIPELINE = {_literal(dag.pipeline)}",
        f"DAG_ID = {_literal(dag.dag_id)}",
        f"ABOUT = {_literal(pipeline.about)}",
        f"SCHEDULE: str | None = {_literal(dag.schedule) if dag.schedule else None}",
        f"RETRIES = {dag.retries}",
        f"LANDS_FIRST = {dag.land_first}",
        f"FOLDER_FROM_HERE = {_literal(folder)}",
        "TABLES: tuple[Table, ...] = (",
        *(line for each in pipeline.tables for line in _entry(each, tasks)),
        ")",
        "# </pipeline>",
    ]
    template = _DAG_FILE.read_text(encoding="utf-8").replace("  # type: ignore[misc]", "")
    return _BLOCK.sub(lambda found: "\n".join(block) + "\n", template)


def _check(pipeline: Pipeline, dag: DagSettings) -> None:
    where = f"pipeline {pipeline.name}"
    if not pipeline.tables:
        raise SpecError(
            "there are no layer tables, so there would be no tasks",
            where=where,
            next_step="Add one, such as staging/orders.sql, and export again.",
        )
    taken = next((each.layer for each in pipeline.tables if each.layer in _OWN_TASKS), None)
    if taken:
        raise SpecError(
            f'the DAG has a task "{taken}" of its own, so no layer can be called that',
            where=where,
            next_step="Rename the layer's folder, and export again.",
        )
    if not is_identifier(dag.dag_id):
        raise SettingsError(f'"{dag.dag_id}" can\'t be a name', where="--dag", next_step=f"Use {IDENTIFIER_RULE}.")
    if dag.schedule and not _SCHEDULE.fullmatch(dag.schedule):
        raise SettingsError(
            f'"{dag.schedule}" is no schedule', where="--schedule", next_step="Write @hourly, @daily, or cron's five fields."
        )


def _entry(table: LayerTable, tasks: dict[TableName, str]) -> list[str]:
    reads = [str(name) for name in dict.fromkeys(table.inputs) if name in tasks]
    return [
        "    Table(",
        f"        name={_literal(str(table.table))},",
        f"        task={_literal(tasks[table.table])},",
        f"        layer={_literal(table.layer)},",
        f"        reads=({' '.join(f'{_literal(name)},' for name in reads)}),",
        f"        about={_literal(table.about)},",
        "    ),",
    ]


def _task_names(tables: Sequence[LayerTable]) -> dict[TableName, str]:
    """Gives back a name for each task: the table's, with its namespace where another table of the layer has it too."""
    short = [(each.layer, each.table.name) for each in tables]
    return {
        each.table: each.table.name if short.count((each.layer, each.table.name)) == 1 else each.table.flat for each in tables
    }


def _literal(text: str) -> str:
    """Gives back the text as Python has it, whatever is in it: a JSON string is one of Python's too."""
    return json.dumps(text, ensure_ascii=False)
