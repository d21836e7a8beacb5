"""Written by headrace export airflow: the tables of a pipeline as a DAG of Airflow 3.2 or newer, one task a table.

Don't change it: change the pipeline and export it again. It needs nothing of Headrace in Airflow's own Python; where tasks run,
the environment says the rest:

HEADRACE_COMMAND   the program, such as the bin/headrace of its environment; left out: `headrace`, as PATH has it
HEADRACE_FOLDER    the folder to run it in, with headrace.toml and pipelines/; left out: the one that the export was made in

All other variables reach Headrace too (HEADRACE_HOME, KAFKA_BOOTSTRAP_SERVERS), except Airflow's own.
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
MISTAKE = 2  # what Headrace ends with when a file or a setting is wrong, which no retry mends


class HeadraceOperator(BaseOperator):  # type: ignore[misc]
    """Runs a command of Headrace, without a shell; what it says is in the task's log."""

    ui_color = "#d5ebf2"

    def __init__(self, *, arguments: list[str], **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.arguments = arguments
        self.hook: SubprocessHook | None = None

    def execute(self, context: object) -> None:
        program = shutil.which(COMMAND)
        if program is None:
            raise AirflowFailException(f"There is no program {COMMAND} here. Set HEADRACE_COMMAND to Headrace's bin/headrace.")
        environ = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
        self.hook = SubprocessHook()
        code = self.hook.run_command([program, *self.arguments], env=environ, cwd=FOLDER).exit_code
        said = f"headrace {' '.join(self.arguments)} ended with {code}; its last lines say why."
        if code == MISTAKE:
            raise AirflowFailException(said)
        if code:
            raise RuntimeError(said)

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
    max_active_tasks=1,  # one application at a time builds a pipeline, and its Spark uses all cores
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
    layers = {layer: TaskGroup(group_id=layer) for layer in dict.fromkeys(each.layer for each in TABLES)}
    tasks = {
        each.name: HeadraceOperator(
            task_id=each.task,
            task_group=layers[each.layer],
            arguments=["build", PIPELINE, "--table", each.name, "--alone"],
            doc_md=f"{each.about}\n\nBuilds `{each.name}`.".strip(),
        )
        for each in TABLES
    }
    end = EmptyOperator(task_id="end")
    read = {name for each in TABLES for name in each.reads}
    for each in TABLES:
        tasks[each.name].set_upstream([tasks[name] for name in each.reads] or first)
        if each.name not in read:
            tasks[each.name] >> end
