"""Export a pipeline as an Airflow DAG: one task per table in dependency order, one task group per layer."""

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

_DAG_FILE = Path(__file__).with_name("airflow_dag.py")  # copied, not imported: it needs Airflow
_OWN_TASKS = ("start", "land", "end")


@dataclass(frozen=True)
class DagSettings:
    """The settings of a DAG that the pipeline does not define.

    `pipeline` is the pipeline's name or path. Without a `schedule`, the DAG runs only when it is triggered. With `land_first`,
    it lands all available messages before it builds.
    """

    dag_id: str
    pipeline: str
    schedule: str | None = None
    retries: int = 2
    land_first: bool = False


def export_dag(settings: Settings, pipeline: Pipeline, dag: DagSettings, *, into: Path) -> tuple[str, ...]:
    """Write the DAG of a pipeline to a folder, and return the messages to print.

    Idempotent. An existing file that no export wrote raises a SpecError and is not changed.
    """
    path = into / f"{dag.dag_id}.py"
    write(dag_text(pipeline, dag, folder=folder_from(into, settings)), path, by="headrace export airflow", other_name="--dag")
    tables = count_of(len(pipeline.tables), "table")
    return (f"{path} has {tables}. Next: set {into} as Airflow's dags_folder, or copy the file there.",)


def dag_text(pipeline: Pipeline, dag: DagSettings, *, folder: str) -> str:
    """Return the text of the DAG's file. `folder` is the working folder of its commands, relative to the file.

    A pipeline without tables raises a SpecError, and settings that Airflow rejects raise a SettingsError.
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
        *(line for table in pipeline.tables for line in _entry(table, tasks)),
        ")",
    ]
    return fill(_DAG_FILE, block)


def _check(pipeline: Pipeline, dag: DagSettings) -> None:
    check_tables(pipeline, what="tasks")
    taken = next((table.layer for table in pipeline.tables if table.layer in _OWN_TASKS), None)
    if taken:
        raise SpecError(
            f'the layer name "{taken}" is reserved for a task of the DAG',
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
    """Return the name of each task: the table's name, with its namespace if it is not unique in the layer."""
    short = [(table.layer, table.table.name) for table in tables]
    return {
        table.table: table.table.name if short.count((table.layer, table.table.name)) == 1 else table.table.flat
        for table in tables
    }
