"""Check exported definitions with a real Dagster, which loads them and materializes their assets: `make dagster`.

One file is of a pipeline that comes with Headrace, on its sample: the sensor sees what landed, and the run must end well, with
the rows that are expected, the partitions that the tables have, and checks that say what the builds found. The sensor then asks
for nothing until something lands, and for a run when it has; that run is ended in the middle, and its command with it. The data
of the second pipeline breaks a table: it must be tried again and fail, its check with it, what reads it must not run, and all
else must be built. The pipeline of the third is gone, which no retry repairs, so nothing of it may be tried again; its schedule
runs it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil

from headrace.iceberg.schema.partitions import list_partitions
from headrace.spec import Pipeline
from headrace.spec.model.layers import LayerTable
from headrace.spec.model.pipeline import TableName
from tests.export.dagster_server import Checked, Dagster, Run, install_dagster, numbers_of, running_dagster
from tests.export.exported import BROKEN, GONE, RETRIES, SECONDS_A_TABLE, exported, not_reached
from tests.support.lake import Lake
from tests.support.samples import layer_lines, values_of
from tests.support.topics import produce
from tests.support.waiting import wait_until

SENSOR_SECONDS = 120.0


def check(name: str, *, folder: Path) -> list[str]:
    """Yield the failed expectations as sentences."""
    files = [folder / "defs" / f"{name}.py" for name in (name, "shop", GONE)]
    gone = ("--name", GONE, "--schedule", "* * * * *")
    with (
        exported(name, to="dagster", folder=folder, gone=gone) as export,
        running_dagster(folder / "dagster", files=files, environ=export.environ) as dagster,
    ):
        print(f"Dagster {dagster.ask('{ version }')['version']} is ready", flush=True)
        return dagster.load_errors(len(files)) or [*_run(dagster, export.lake, export.sound, export.broken)]


def _run(dagster: Dagster, lake: Lake, sound: Pipeline, broken: Pipeline) -> Iterator[str]:
    started = time.monotonic()
    dagster.start_schedule(GONE)
    gone = dagster.wait_for_run(GONE, seconds=120 + SECONDS_A_TABLE)
    dagster.launch(broken.name)
    failed = dagster.wait_for_run(broken.name, seconds=SECONDS_A_TABLE * len(broken.tables))
    dagster.start_sensor(sound.name)
    whole = dagster.wait_for_run(sound.name, seconds=SENSOR_SECONDS + SECONDS_A_TABLE * len(sound.tables))
    for name, run, wanted in ((GONE, gone, "FAILURE"), (broken.name, failed, "FAILURE"), (sound.name, whole, "SUCCESS")):
        print(f"{name}: {run.state}", flush=True)
        if run.state != wanted:
            yield f"{name} ended with {run.state}, not {wanted}:\n{dagster.log(run.run_id)}"
    print(f"after {time.monotonic() - started:.0f} s", flush=True)
    tries = {step: step_run.tries for step, step_run in gone.steps.items() if step_run.state == "FAILURE"}
    if not tries or {*tries.values()} != {1} or "not found: pipeline.yml" not in dagster.log(gone.run_id):
        yield f"{GONE}: something was tried again, nothing failed, or the log does not say why: {tries}"
    yield from _check_sound(dagster, lake, sound, whole)
    yield from _check_broken(dagster, broken, failed)
    yield from _check_sensor(dagster, lake, sound)


def _check_sound(dagster: Dagster, lake: Lake, pipeline: Pipeline, run: Run) -> Iterator[str]:
    """Yield failures unless every asset materialized alone and after its inputs, with expected rows, partitions and checks."""
    yield from _check_states(pipeline, run, {_step_of(table.table): "SUCCESS" for table in pipeline.tables})
    yield from _check_order(pipeline, run)
    results = {
        (result["table"], result["sentence"]): result for result in json.loads(lake.run("quality", pipeline.name, "--json"))
    }
    for table in pipeline.tables:
        asset = dagster.asset(table.table.parts)
        if {tuple(key["path"]) for key in asset["dependencyKeys"]} != {input_name.parts for input_name in table.inputs}:
            yield f"{table.table}: it does not follow the tables that it reads"
        builds = {numbers_of(materialization["metadataEntries"])["build"] for materialization in asset["assetMaterializations"]}
        if builds != {1}:
            yield f"{table.table}: its materializations are of builds {builds}"
        checks = {check["description"]: check for check in asset["assetChecksOrError"].get("checks", ())}
        if checks.keys() != {expectation.sentence for expectation in table.expectations}:
            yield f"{table.table}: its checks are {[*checks]}"
        for expectation in table.expectations:
            said, checked = (
                results[str(table.table), expectation.sentence],
                dagster.checked(table.table.parts, checks[expectation.sentence]["name"]),
            )
            numbers = {"rows checked": said["last_checked"], "rows failing": said["last_failed"], "build": 1}
            severity = "ERROR" if expectation.on_failure == "fail" else "WARN"
            if checked != [Checked(run.run_id, said["last_failed"] == 0, severity, numbers)]:
                yield f'{table.table}: of "{expectation.sentence}" the lake says {said}, and Dagster {checked}'
        yield from _check_partitions(dagster, lake, table)
        expected = (pipeline.folder / "expected" / table.layer / f"{table.table.name}.jsonl").read_text(encoding="utf-8")
        if layer_lines(lake, table) != expected.splitlines():
            yield f"{table.table}: its rows are not the expected ones"
    if not any(result["last_failed"] for result in results.values()):
        yield f"{pipeline.name}: no expectation fails in its sample, so nothing is shown of failing checks"


def _check_partitions(dagster: Dagster, lake: Lake, table: LayerTable) -> Iterator[str]:
    if not table.partition_by:
        return
    wanted = list_partitions(lake.table(str(table.table)))
    asset = dagster.asset((*table.table.parts, "partitions"))
    materialized, stats = (
        sorted(materialization["partition"] for materialization in asset["assetMaterializations"]),
        asset["partitionStats"],
    )
    if (
        not wanted
        or materialized != [*wanted]
        or (stats["numPartitions"], stats["numMaterialized"]) != (len(wanted), len(wanted))
    ):
        yield f"{table.table}: it has the partitions {wanted}, and Dagster has {materialized}, {stats}"


def _check_broken(dagster: Dagster, pipeline: Pipeline, run: Run) -> Iterator[str]:
    """Yield failures unless one asset and its check failed after all retries, and only its downstream assets never ran."""
    after = not_reached(pipeline)
    wanted = {_step_of(table.table): "SUCCESS" for table in pipeline.tables if table.table not in after}
    yield from _check_states(pipeline, run, {**wanted, _step_of(BROKEN): "FAILURE", "land": "SUCCESS"})
    step = run.steps.get(_step_of(BROKEN))
    if step is None or step.tries != 1 + RETRIES:
        yield f"{BROKEN} was tried {step and step.tries} times, not {1 + RETRIES}"
    checked = dagster.checked(BROKEN.parts, "the_charge_has_a_customer")
    numbers = {"rows checked": 1, "rows failing": 1, "build": 0}
    if checked != [Checked(run.run_id, False, "ERROR", numbers)] * len(checked) or not checked:
        yield f"{BROKEN}: its check does not say what was found: {checked}"
    if dagster.asset(BROKEN.parts)["assetMaterializations"]:
        yield f"{BROKEN}: it failed, and counts as materialized"
    said = "quality: the charge has a customer: 1 row checked, 1 failing, build failed"
    if said not in dagster.log(run.run_id):
        yield f"{BROKEN}: the log does not say why it failed"


def _check_sensor(dagster: Dagster, lake: Lake, pipeline: Pipeline) -> Iterator[str]:
    """Yield failures unless the sensor starts a run only for new data, and ending the run ends its command."""
    looked = len(dagster.ticks(pipeline.name))
    wait_until(
        lambda: len(dagster.ticks(pipeline.name)) > looked + 1,
        what="the sensor to look twice",
        seconds=SENSOR_SECONDS,
        pause=2.0,
    )
    newest = next(tick for tick in dagster.ticks(pipeline.name) if tick["status"] != "STARTED")
    if (newest["status"], newest["skipReason"]) != ("SKIPPED", "No input has a new snapshot."):
        yield f"{pipeline.name}: nothing landed, and its sensor says {newest}"
    if len(dagster.runs(pipeline.name)) != 1:
        yield f"{pipeline.name}: nothing landed, and its sensor asked for another run"
    stream = pipeline.streams[0]
    more = values_of(stream, pipeline.folder / "sample" / f"{stream.name}.jsonl")[:1]
    produce(lake.servers, stream.topic, more, partitions=stream.partitions)
    assert lake.start("land", pipeline.name, "--once").wait(seconds=300) == 0
    wait_until(_commands, what="a run for what landed to build a table", seconds=SENSOR_SECONDS, pause=0.5)
    runs = dagster.runs(pipeline.name)
    if len(runs) != 2:
        yield f"{pipeline.name}: something landed once, and there are {len(runs)} runs"
    if len(dagster.asset(stream.table.parts)["assetMaterializations"]) != 2:
        yield f"{stream.table}: its two snapshots are not in Dagster"
    dagster.terminate(runs[0].run_id)
    if (state := dagster.wait_for_run(pipeline.name, number=2, seconds=60).state) != "CANCELED":
        yield f"{pipeline.name}: its run was ended, and is {state}"
    if _commands():
        yield f"{pipeline.name}: its run was ended, and the run's command goes on"


def _commands() -> list[int]:
    """Return the processes of Dagster that build a table."""
    return [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "--no-deps" in child.cmdline()
    ]


def _check_states(pipeline: Pipeline, run: Run, wanted: dict[str, str]) -> Iterator[str]:
    for name in sorted(wanted.keys() | run.steps.keys()):
        state = run.steps[name].state if name in run.steps else "left alone"
        if state != wanted.get(name, "left alone"):
            yield f"{pipeline.name}: {name} is {state}, not {wanted.get(name, 'left alone')}"


def _check_order(pipeline: Pipeline, run: Run) -> Iterator[str]:
    spans = {table.table: run.steps[_step_of(table.table)] for table in pipeline.tables if _step_of(table.table) in run.steps}
    for table in pipeline.tables:
        for read in (name for name in table.inputs if name in spans and table.table in spans):
            if spans[table.table].start < spans[read].end:
                yield f"{table.table} began before {read} was built"
    for before, after in pairwise(sorted(spans.values(), key=lambda step: step.start)):
        if after.start < before.end:
            yield f"{pipeline.name}: two assets were built at once"


def _step_of(table: TableName) -> str:
    return table.flat


if __name__ == "__main__":
    install_dagster()
    with tempfile.TemporaryDirectory() as scratch:
        wrong = check(sys.argv[1] if len(sys.argv) > 1 else "commerce", folder=Path(scratch).resolve())
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    print("DAGSTER DOES NOT RUN IT AS IT MUST: see above" if wrong else "Dagster runs the exported definitions as it must")
    sys.exit(1 if wrong else 0)
