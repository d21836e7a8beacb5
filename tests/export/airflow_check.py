"""Check exported DAGs with a real Airflow, which parses and runs them: `make airflow PIPELINE=payments`.

One DAG is of a pipeline that comes with Headrace, on its sample: it must end well, with the rows that are expected. The data of
the second breaks a table: its task must be tried again and fail, what reads it must not run, and all else must be built. The
pipeline of the third is gone, which no retry repairs, so nothing of it may be tried again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from headrace.spec import Pipeline
from headrace.spec.model.layers import LayerTable
from tests.export.airflow_server import Airflow, TaskRun, install_airflow, running_airflow
from tests.export.exported import BROKEN, GONE, RETRIES, SECONDS_A_TABLE, exported, not_reached
from tests.support.lake import Lake
from tests.support.samples import layer_lines

RUN = "checked"


def check(name: str, *, folder: Path) -> list[str]:
    """Yield the failed expectations as sentences."""
    gone = ("--dag", GONE, "--schedule", "@yearly")
    with (
        exported(name, to="airflow", folder=folder, gone=gone) as export,
        running_airflow(folder / "airflow", dags=folder / "dags", environ=export.environ) as airflow,
    ):
        print(f"Airflow {airflow.ask('/version')['version']} is ready", flush=True)
        return airflow.wait_to_parse(name, "shop", GONE) or [*_run(airflow, export.lake, export.sound, export.broken)]


def _run(airflow: Airflow, lake: Lake, sound: Pipeline, broken: Pipeline) -> Iterator[str]:
    """Run the DAGs in parallel."""
    started = time.monotonic()
    for dag_id in (GONE, sound.name, broken.name):
        airflow.trigger(dag_id, RUN)
    for dag_id, wanted in ((GONE, "failed"), (broken.name, "failed"), (sound.name, "success")):
        state = airflow.wait_for(dag_id, RUN, seconds=SECONDS_A_TABLE * (len(sound.tables) + len(broken.tables)))
        print(f"{dag_id}: {state} after {time.monotonic() - started:.0f} s", flush=True)
        if state != wanted:
            yield f"{dag_id} ended with {state}, not {wanted}"
    yield from _check_sound(airflow, lake, sound)
    yield from _check_broken(airflow, broken)
    logs = airflow.logs(GONE, RUN, str(BROKEN))
    if len(logs) != 1 or "not found: pipeline.yml" not in logs[0]:
        yield f"{GONE}: {BROKEN} was tried {len(logs)} times, not once, or its log does not say why"


def _check_sound(airflow: Airflow, lake: Lake, pipeline: Pipeline) -> Iterator[str]:
    """Yield failures unless every task succeeded alone and after its dependencies, with its quality log and expected rows."""
    tasks = airflow.tasks(pipeline.name, RUN)
    wanted = {**{_task_of(table): "success" for table in pipeline.tables}, "start": "success", "end": "success"}
    yield from _check_states(pipeline, tasks, wanted)
    yield from _check_order(pipeline, tasks)
    for table in pipeline.tables:
        log = "\n".join(airflow.logs(pipeline.name, RUN, _task_of(table)))
        for expectation in table.expectations:
            if f"quality: {expectation.sentence}: " not in log:
                yield f'{table.table}: its log does not say whether "{expectation.sentence}"'
        expected = (pipeline.folder / "expected" / table.layer / f"{table.table.name}.jsonl").read_text(encoding="utf-8")
        if layer_lines(lake, table) != expected.splitlines():
            yield f"{table.table}: its rows are not the expected ones"


def _check_broken(airflow: Airflow, pipeline: Pipeline) -> Iterator[str]:
    """Yield failures unless one task failed after all retries, its downstream tasks never ran, and the others succeeded."""
    tasks = airflow.tasks(pipeline.name, RUN)
    after = not_reached(pipeline)
    wanted = {_task_of(table): "upstream_failed" if table.table in after else "success" for table in pipeline.tables}
    own = {"start": "success", "land": "success", "end": "upstream_failed"}
    yield from _check_states(pipeline, tasks, {**wanted, **own, str(BROKEN): "failed"})
    logs = airflow.logs(pipeline.name, RUN, str(BROKEN))
    if len(logs) != 1 + RETRIES:
        yield f"{BROKEN} was tried {len(logs)} times, not {1 + RETRIES}"
    said = "quality: the charge has a customer: 1 row checked, 1 failing, build failed"
    if not all(said in log for log in logs):
        yield f"{BROKEN}: its log does not say why it failed"


def _check_states(pipeline: Pipeline, tasks: dict[str, TaskRun], wanted: dict[str, str]) -> Iterator[str]:
    for name in sorted(wanted.keys() | tasks.keys()):
        state = tasks[name].state if name in tasks else "missing"
        if state != wanted.get(name):
            yield f"{pipeline.name}: task {name} is {state}, not {wanted.get(name)}"


def _check_order(pipeline: Pipeline, tasks: dict[str, TaskRun]) -> Iterator[str]:
    times = {table.table: tasks[_task_of(table)] for table in pipeline.tables if _task_of(table) in tasks}
    spans = {table: (run.start, run.end) for table, run in times.items() if run.start and run.end}
    for table in pipeline.tables:
        for read in (name for name in table.inputs if name in spans and table.table in spans):
            if spans[table.table][0] < spans[read][1]:
                yield f"{table.table} began before {read} was built"
    for (_, end), (start, _) in pairwise(sorted(spans.values())):
        if start < end:
            yield f"{pipeline.name}: two tasks ran at once"


def _task_of(table: LayerTable) -> str:
    return f"{table.layer}.{table.table.name}"


if __name__ == "__main__":
    install_airflow()
    with tempfile.TemporaryDirectory() as scratch:
        wrong = check(sys.argv[1] if len(sys.argv) > 1 else "payments", folder=Path(scratch).resolve())
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    print("AIRFLOW DOES NOT RUN IT AS IT MUST: see above" if wrong else "Airflow runs the exported DAGs as it must")
    sys.exit(1 if wrong else 0)
