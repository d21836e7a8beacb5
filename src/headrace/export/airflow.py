"""A pipeline as a DAG of Airflow: one task a table, in the order in which a build has them, layers as groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import SpecError
from headrace.export.written import check_name, check_schedule, check_tables, fill, folder_from, literal, literals, write
from headrace.plurals import count_of
from headrace.settings import Settings
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import Pipeline, TableName

_DAG_FILE = Path(__file__).with_name("airflow_dag.py")  # copied, not imported: only Airflow has what it needs
_OWN_TASKS = ("start", "land", "end")


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
    """Write the DAG of a pipeline to a folder, and return what there is to say about it.

    Idempotent. A file of that name that was not exported is a SpecError, and stays as it is.
    """
    path = into / f"{dag.dag_id}.py"
    write(dag_text(pipeline, dag, folder=folder_from(into, settings)), path, by="headrace export airflow", other_name="--dag")
    tables = count_of(len(pipeline.tables), "table")
    return (f"{path} has {tables}. Next: make {into} Airflow's dags_folder, or copy the file to it.",)


def dag_text(pipeline: Pipeline, dag: DagSettings, *, folder: str) -> str:
    """Return the DAG's file, the same for the same pipeline. `folder` is where its commands run, seen from the file.

    A pipeline without tables, and what Airflow would refuse, is an error.
    """
    _check(pipeline, dag)
    tasks = _task_names(pipeline.tables)
    block = [
        f"PIPELINE = {literal(dag.pipeline)}",
        f"DAG_ID = {literal(dag.dag_id)}",
        f"ABOUT = {literal(pipeline.about)}",
        f"SCHEDULE: str | None = {literal(dag.schedule) if dag.schedule else None}",
        f"RETRIES = {dag.retries}",
        f"LANDS_FIRST = {dag.land_first}",
        f"FOLDER_FROM_HERE = {literal(folder)}",
        "TABLES: tuple[Table, ...] = (",
        *(line for each in pipeline.tables for line in _entry(each, tasks)),
        ")",
    ]
    return fill(_DAG_FILE, block)


def _check(pipeline: Pipeline, dag: DagSettings) -> None:
    check_tables(pipeline, what="tasks")
    taken = next((each.layer for each in pipeline.tables if each.layer in _OWN_TASKS), None)
    if taken:
        raise SpecError(
            f'the DAG has a task "{taken}" of its own, so no layer can be called that',
            where=f"pipeline {pipeline.name}",
            next_step="Rename the layer's folder, and export again.",
        )
    check_name(dag.dag_id, option="--dag")
    if dag.schedule:
        check_schedule(dag.schedule)


def _entry(table: LayerTable, tasks: dict[TableName, str]) -> list[str]:
    reads = [str(name) for name in dict.fromkeys(table.inputs) if name in tasks]
    return [
        "    Table(",
        f"        name={literal(str(table.table))},",
        f"        task={literal(tasks[table.table])},",
        f"        layer={literal(table.layer)},",
        f"        reads={literals(reads)},",
        f"        about={literal(table.about)},",
        "    ),",
    ]


def _task_names(tables: Sequence[LayerTable]) -> dict[TableName, str]:
    """Return a name for each task: the table's, with its namespace where another table of the layer has it too."""
    short = [(each.layer, each.table.name) for each in tables]
    return {
        each.table: each.table.name if short.count((each.layer, each.table.name)) == 1 else each.table.flat for each in tables
    }
