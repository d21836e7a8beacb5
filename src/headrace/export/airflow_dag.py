"""Written by headrace export airflow: a DAG for Airflow 3.2 or newer that builds a pipeline's tables, one task per table.

Don't edit this file: change the pipeline and export it again. Airflow's Python environment does not need Headrace. These
environment variables configure the tasks:

HEADRACE_COMMAND   the program, such as bin/headrace of its environment; default: `headrace` on PATH
HEADRACE_FOLDER    the working folder, with headrace.toml and pipelines/; default: the folder of the export

All other variables are passed to Headrace (HEADRACE_HOME, KAFKA_BOOTSTRAP_SERVERS), except Airflow's own.
"""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup
from airflow.sdk.exceptions import AirflowFailException


class Table(NamedTuple):
    name: str
    task: str
    layer: str
    reads: tuple[str, ...]
    about: str


# <pipeline>
PIPELINE = "example"
DAG_ID = "example"
ABOUT = ""
SCHEDULE: str | None = None
RETRIES = 2
LANDS_FIRST = False
FOLDER_FROM_HERE = "."
TABLES: tuple[Table, ...] = ()
# </pipeline>

COMMAND = os.environ.get("HEADRACE_COMMAND") or "headrace"
FOLDER = os.environ.get("HEADRACE_FOLDER") or str((Path(__file__).resolve().parent / FOLDER_FROM_HERE).resolve())
MISTAKE = 2  # Headrace's exit code for an invalid file or setting, which a retry can't fix


class HeadraceOperator(BaseOperator):  # type: ignore[misc]
    """Run a Headrace command without a shell, and write its output to the task's log."""

    ui_color = "#d5ebf2"

    def __init__(self, *, arguments: list[str], **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.arguments = arguments
        self.hook: SubprocessHook | None = None

    def execute(self, context: object) -> None:
        program = shutil.which(COMMAND)
        if program is None:
            raise AirflowFailException(f"Program not found: {COMMAND}. Set HEADRACE_COMMAND to Headrace's bin/headrace.")
        environ = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
        self.hook = SubprocessHook()
        code = self.hook.run_command([program, *self.arguments], env=environ, cwd=FOLDER).exit_code
        outcome = f"headrace {' '.join(self.arguments)} failed with exit code {code}. See the last lines of its log."
        if code == MISTAKE:
            raise AirflowFailException(outcome)
        if code:
            raise RuntimeError(outcome)

    def on_kill(self) -> None:
        if self.hook is not None:
            self.hook.send_sigterm()


with DAG(
    DAG_ID,
    description=ABOUT,
    doc_md=f"{ABOUT}\n\nWritten by `headrace export airflow {PIPELINE}`.",
    schedule=SCHEDULE,
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,  # only one application can build a pipeline at a time, and its Spark uses all cores
    default_args={
        "retries": RETRIES,
        "retry_delay": timedelta(seconds=30),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=10),
    },
    tags=["headrace", PIPELINE],
) as dag:
    first = start = EmptyOperator(task_id="start")
    if LANDS_FIRST:
        first = HeadraceOperator(task_id="land", arguments=["land", PIPELINE, "--once"])
        start >> first
    layers = {layer: TaskGroup(group_id=layer) for layer in dict.fromkeys(table.layer for table in TABLES)}
    tasks = {
        table.name: HeadraceOperator(
            task_id=table.task,
            task_group=layers[table.layer],
            arguments=["build", PIPELINE, "--table", table.name, "--no-deps"],
            doc_md=f"{table.about}\n\nBuilds `{table.name}`.".strip(),
        )
        for table in TABLES
    }
    end = EmptyOperator(task_id="end")
    read = {name for table in TABLES for name in table.reads}
    for table in TABLES:
        tasks[table.name].set_upstream([tasks[name] for name in table.reads] or first)
        if table.name not in read:
            tasks[table.name] >> end
