"""Written by headrace export dagster: a pipeline's tables as assets for Dagster 1.10 or newer.

Don't edit this file: change the pipeline and export it again. Dagster's Python environment does not need Headrace. These
environment variables configure the runs:

HEADRACE_COMMAND   the program, such as bin/headrace of its environment; default: `headrace` on PATH
HEADRACE_FOLDER    the working folder, with headrace.toml and pipelines/; default: the folder of the export

All other variables are passed to Headrace (HEADRACE_HOME, KAFKA_BOOTSTRAP_SERVERS), except Dagster's own. The schedule and
the sensor are off until you turn them on in Dagster. Only one run at a time builds a pipeline.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import dagster as dg


class Check(NamedTuple):
    name: str
    sentence: str
    on_failure: str


class Table(NamedTuple):
    key: tuple[str, ...]
    layer: str
    reads: tuple[tuple[str, ...], ...]
    about: str
    partition_by: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        return ".".join(self.key)


class Source(NamedTuple):
    key: tuple[str, ...]
    about: str

    @property
    def name(self) -> str:
        return ".".join(self.key)


# <pipeline>
PIPELINE = "example"
NAME = "example"
ABOUT = ""
SCHEDULE = "@hourly"
RETRIES = 2
LANDS_FIRST = False
FOLDER_FROM_HERE = "."
SOURCES: tuple[Source, ...] = ()
TABLES: tuple[Table, ...] = ()
# </pipeline>

COMMAND = os.environ.get("HEADRACE_COMMAND") or "headrace"
FOLDER = os.environ.get("HEADRACE_FOLDER") or str((Path(__file__).resolve().parent / FOLDER_FROM_HERE).resolve())
MISTAKE = 2  # Headrace's exit code for an invalid file or setting, which a retry can't fix
LANDED = "landed"
TAGS = {"headrace/pipeline": NAME}
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 30, 600


class Answer(NamedTuple):
    """The result of a Headrace command: its exit code and its standard output."""

    code: int
    output: str
    command: str

    @property
    def problem(self) -> str:
        return f"{self.command} failed with exit code {self.code}. See the last lines of its log."


def call(arguments: Sequence[str], *, log: Callable[[str], object]) -> Answer:
    """Run a command without a shell, and log its standard error. If Dagster ends the run, the command is terminated."""
    program = shutil.which(COMMAND)
    if program is None:
        raise dg.Failure(f"Program not found: {COMMAND}. Set HEADRACE_COMMAND to Headrace's bin/headrace.")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER_")}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [program, *arguments],
            cwd=FOLDER,
            env=environ,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            for line in process.stderr or ():
                log(line.rstrip())
            process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        output.seek(0)
        return Answer(process.returncode, output.read(), f"headrace {' '.join(arguments)}")


def fail(context: Any, answer: Answer) -> NoReturn:
    """Fail an asset, and request a retry if that may help. A retry policy would also retry runs that Dagster ends."""
    problem = dg.Failure(answer.problem)
    if answer.code == MISTAKE:
        raise problem
    wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**context.retry_number)
    raise dg.RetryRequested(max_retries=RETRIES, seconds_to_wait=wait) from problem


def partitions_of(table: Table) -> Any:
    """Return the dynamic partitions of a table, which builds update."""
    return dg.DynamicPartitionsDefinition(name=f"{NAME}.{table.name}")


def partitions_key(table: Table) -> Any:
    return dg.AssetKey([*table.key, "partitions"])


def check_result(check: Check, table: Table, report: dict[str, Any]) -> Any:
    """Return the result of an expectation in the last build that checked it."""
    result = next((expectation for expectation in report["expectations"] if expectation["sentence"] == check.sentence), None)
    severity = dg.AssetCheckSeverity.ERROR if check.on_failure == "fail" else dg.AssetCheckSeverity.WARN
    if result is None:
        return dg.AssetCheckResult(
            asset_key=list(table.key),
            check_name=check.name,
            passed=False,
            severity=severity,
            description="No build has checked this expectation.",
        )
    return dg.AssetCheckResult(
        asset_key=list(table.key),
        check_name=check.name,
        passed=result["failed"] == 0,
        severity=severity,
        description=f"{result['failed']:,} of {result['checked']:,} rows failed the expectation",
        metadata={"rows checked": result["checked"], "rows failing": result["failed"], "build": report["build_id"]},
    )


def note_partitions(context: Any, table: Table, report: dict[str, Any]) -> None:
    """Update the table's partitions in Dagster, and log a materialization for each one that this build changed."""
    name, wanted = partitions_of(table).name, set(report["partitions"])
    known = set(context.instance.get_dynamic_partitions(name))
    context.instance.add_dynamic_partitions(name, sorted(wanted - known))
    for gone in sorted(known - wanted):
        context.instance.delete_dynamic_partition(name, gone)
    for partition in report["changed_partitions"]:
        if partition in wanted:
            metadata = {"build": report["build_id"]}
            context.log_event(dg.AssetMaterialization(asset_key=partitions_key(table), partition=partition, metadata=metadata))


def asset_of(table: Table) -> Any:
    """Return the asset that builds one table but not its inputs, which are separate assets."""
    arguments = ["build", PIPELINE, "--table", table.name, "--no-deps", "--json"]

    def build(context) -> Iterator[Any]:  # type: ignore[no-untyped-def]
        answer = call(arguments, log=context.log.info)
        report = json.loads(answer.output) if answer.output else {"expectations": [], "build_id": 0}
        results = [check_result(check, table, report) for check in table.checks]
        if answer.code:
            if report["expectations"]:
                yield from results
            fail(context, answer)
        if table.partition_by:
            note_partitions(context, table, report)
        yield dg.MaterializeResult(
            asset_key=list(table.key),
            data_version=dg.DataVersion(report["version"]),
            check_results=results,
            metadata={
                "build": report["build_id"],
                "snapshot": str(report["snapshot_id"]),
                "rows written": report["rows_written"],
                "seconds": report["seconds"],
                "changed": report["built"],
            },
        )

    build.__name__ = "__".join(table.key)
    return dg.asset(
        key=list(table.key),
        deps=[dg.AssetKey(list(key)) for key in table.reads],
        group_name=table.layer,
        description=table.about or None,
        kinds={"iceberg", "spark"},
        metadata={"dagster/table_name": table.name},
        check_specs=[
            dg.AssetCheckSpec(
                check.name,
                asset=dg.AssetKey(list(table.key)),
                description=check.sentence,
                blocking=check.on_failure == "fail",
                metadata={"on_failure": check.on_failure},
            )
            for check in table.checks
        ],
        pool=f"headrace_{NAME}",
    )(build)


def partitions_asset(table: Table) -> Any:
    """Return the partitions of a table as an external asset: the table's build decides which of them it changes."""
    return dg.AssetSpec(
        partitions_key(table),
        deps=[dg.AssetKey(list(table.key))],
        group_name=table.layer,
        description=f"The partitions of {table.name}, by {', '.join(table.partition_by)}; with the builds that changed them.",
        partitions_def=partitions_of(table),
        kinds={"iceberg"},
    )


def source_specs() -> list[Any]:
    return [
        dg.AssetSpec(
            list(source.key),
            group_name=LANDED,
            description=source.about,
            kinds={"iceberg", "kafka"},
            metadata={"dagster/table_name": source.name},
        )
        for source in SOURCES
    ]


def landing_asset() -> Any:
    """Return the asset that lands all available messages in the raw tables."""

    def land(context) -> Iterator[Any]:  # type: ignore[no-untyped-def]
        answer = call(["land", PIPELINE, "--once"], log=context.log.info)
        for line in answer.output.splitlines():
            context.log.info(line)
        if answer.code:
            fail(context, answer)
        for source in SOURCES:
            yield dg.MaterializeResult(asset_key=list(source.key))

    return dg.multi_asset(name="land", specs=source_specs(), pool=f"headrace_{NAME}")(land)


def is_under_way(instance: Any) -> bool:
    return bool(instance.get_runs_count(dg.RunsFilter(tags=TAGS, statuses=UNDER_WAY)))


def check_snapshots(context: Any) -> Any:
    """Request a run if an input has a new snapshot and the plan has work for a build."""
    if is_under_way(context.instance):
        return dg.SkipReason("A run is in progress. The sensor checks again after it.")
    answer = call(["plan", PIPELINE, "--json"], log=context.log.info)
    if answer.code:
        raise dg.Failure(answer.problem)
    plans = json.loads(answer.output)
    sources = {source.name for source in SOURCES}
    now = {name: read["snapshot"] for plan in plans for name, read in plan["reads"].items() if name in sources}
    known = json.loads(context.cursor) if context.cursor else {}
    moved = sorted(name for name, snapshot in now.items() if snapshot is not None and snapshot != known.get(name))
    if not moved:
        return dg.SkipReason("No input has a new snapshot.")
    cursor = json.dumps(now, sort_keys=True)
    landed = [] if LANDS_FIRST else [landed_event(source, now[source.name]) for source in SOURCES if source.name in moved]
    if all(plan["action"] == "nothing" for plan in plans):
        reason = "The new snapshots contain no changes to build."
        return dg.SensorResult(skip_reason=reason, cursor=cursor, asset_events=landed)
    step = hashlib.sha256(f"{context.cursor} {cursor}".encode()).hexdigest()
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=step)], cursor=cursor, asset_events=landed)


def landed_event(source: Source, snapshot: int) -> Any:
    return dg.AssetMaterialization(asset_key=list(source.key), metadata={"snapshot": str(snapshot)})


tables = [asset_of(table) for table in TABLES]
partitions = [partitions_asset(table) for table in TABLES if table.partition_by]
landing = [landing_asset()] if LANDS_FIRST else source_specs()
job = dg.define_asset_job(
    NAME,
    selection=dg.AssetSelection.assets(*tables, *(landing if LANDS_FIRST else ())),
    description=ABOUT,
    tags=TAGS,
    executor_def=dg.in_process_executor,  # only one application can build a pipeline at a time, and its Spark uses all cores
)
defs = dg.Definitions(
    assets=[*landing, *tables, *partitions],
    jobs=[job],
    schedules=[
        dg.ScheduleDefinition(
            name=f"{NAME}_schedule",
            job=job,
            cron_schedule=SCHEDULE,
            should_execute=lambda context: not is_under_way(context.instance),
        )
    ],
    sensors=[
        dg.SensorDefinition(name=f"{NAME}_snapshots", job=job, evaluation_fn=check_snapshots, minimum_interval_seconds=30)
    ],
    executor=dg.in_process_executor,
)
