"""A real Dagster in a separate environment: its daemon and its web server, with access to runs, assets and checks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from headrace.servers.ports import find_free_port
from tests.export.tools import install_tool, running_parts
from tests.support.waiting import wait_until

LOCK = Path(__file__).with_name("dagster.lock")
_SETTINGS = """\
telemetry: {enabled: false}
concurrency:
  runs: {max_concurrent_runs: 1}
  pools: {default_limit: 1, granularity: op}
"""
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_REPOSITORY = "__repository__"
_LOADED = """{ workspaceOrError { ... on Workspace { locationEntries { name locationOrLoadError {
  __typename ... on PythonError { message } } } } } }"""
_RUNS = """query($name: String!) { runsOrError(filter: {pipelineName: $name}) { ... on Runs { results {
  runId status stepStats { stepKey status startTime endTime attempts { startTime } } } } } }"""
_LAUNCH = """mutation($location: String!, $job: String!) { launchRun(executionParams: {runConfigData: "{}", selector: {
  repositoryLocationName: $location, repositoryName: "__repository__", pipelineName: $job}}) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_TERMINATE = "mutation($run: String!) { terminateRun(runId: $run) { __typename } }"
_START_SENSOR = "mutation($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename } }"
_START_SCHEDULE = """mutation($selector: ScheduleSelector!) { startSchedule(scheduleSelector: $selector) { __typename } }"""
_TICKS = """query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor {
  sensorState { ticks(limit: 50) { status skipReason runIds error { message } } } } } }"""
_ASSET = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  groupName dependencyKeys { path } partitionStats { numPartitions numMaterialized }
  assetMaterializations { runId partition metadataEntries { label ... on IntMetadataEntry { intValue } } }
  assetChecksOrError { ... on AssetChecks { checks { name description blocking } } } } } }"""
_CHECKED = """query($key: AssetKeyInput!, $check: String!) {
  assetCheckExecutions(assetKey: $key, checkName: $check, limit: 10) { status runId evaluation { success severity
    metadataEntries { label ... on IntMetadataEntry { intValue } } } } }"""
_LOGS = """query($run: ID!) { logsForRun(runId: $run, limit: 10000) { ... on EventConnection { events {
  __typename ... on MessageEvent { message stepKey } ... on ExecutionStepFailureEvent { error { message } } } } } }"""


@dataclass(frozen=True)
class Step:
    """The state of an asset in a run. `tries` counts its starts."""

    state: str
    start: float
    end: float
    tries: int


@dataclass(frozen=True)
class Run:
    run_id: str
    state: str
    steps: Mapping[str, Step]


@dataclass(frozen=True)
class Checked:
    """The result of a check in a run."""

    run_id: str
    passed: bool
    severity: str
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class Dagster:
    """A running Dagster with its GraphQL API at `address`. Logs are in `home`."""

    address: str
    home: Path

    def ask(self, query: str, **variables: object) -> Any:
        """Return the response. An invalid query raises an error."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(f"{self.address}/graphql", data=body, headers={"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            answer_json = json.load(answer)
        assert "errors" not in answer_json, answer_json
        return answer_json["data"]

    def load_errors(self, count: int) -> list[str]:
        """Return the errors of files that could not be loaded, after all files were tried."""

        def loaded() -> list[Any] | None:
            entries = self.ask(_LOADED)["workspaceOrError"]["locationEntries"]
            done = [entry for entry in entries if entry["locationOrLoadError"]]
            return done if len(done) == count else None

        locations = wait_until(loaded, what=f"Dagster to load {count} files; see {self.home}", seconds=120, pause=1.0)
        assert locations is not None
        results = [(location["name"], location["locationOrLoadError"]) for location in locations]
        return [f"{name}: {result['message']}" for name, result in results if result["__typename"] == "PythonError"]

    def launch(self, name: str) -> str:
        """Return the id of a new run of the job in the file of its name."""
        launched = self.ask(_LAUNCH, location=name, job=name)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        terminated = self.ask(_TERMINATE, run=run_id)["terminateRun"]
        assert terminated["__typename"] == "TerminateRunSuccess", terminated

    def start_sensor(self, name: str) -> None:
        started = self.ask(_START_SENSOR, selector=_selector(name, "sensorName", f"{name}_snapshots"))["startSensor"]
        assert started["__typename"] == "Sensor", started

    def start_schedule(self, name: str) -> None:
        started = self.ask(_START_SCHEDULE, selector=_selector(name, "scheduleName", f"{name}_schedule"))["startSchedule"]
        assert started["__typename"] == "ScheduleStateResult", started

    def ticks(self, name: str) -> list[dict[str, Any]]:
        """Return the ticks of a pipeline's sensor, newest first."""
        sensor = self.ask(_TICKS, selector=_selector(name, "sensorName", f"{name}_snapshots"))["sensorOrError"]
        ticks: list[dict[str, Any]] = sensor["sensorState"]["ticks"]
        return ticks

    def runs(self, name: str) -> list[Run]:
        """Return the runs of a job, newest first."""
        return [
            Run(
                run["runId"],
                run["status"],
                {
                    step["stepKey"]: Step(
                        step["status"], step["startTime"] or 0.0, step["endTime"] or 0.0, max(1, len(step["attempts"]))
                    )
                    for step in run["stepStats"]
                },
            )
            for run in self.ask(_RUNS, name=name)["runsOrError"]["results"]
        ]

    def wait_for_run(self, name: str, *, number: int = 1, seconds: float) -> Run:
        """Return the first run of a job, or the one with the given number, after it ended."""

        def ended() -> Run | None:
            runs = self.runs(name)
            return runs[-number] if len(runs) >= number and runs[-number].state in _ENDED else None

        run = wait_until(ended, what=f"run {number} of {name} to end; logs are in {self.home}", seconds=seconds, pause=2.0)
        assert run is not None
        return run

    def asset(self, key: Sequence[str]) -> dict[str, Any]:
        asset: dict[str, Any] = self.ask(_ASSET, key={"path": [*key]})["assetNodeOrError"]
        return asset

    def checked(self, key: Sequence[str], check: str) -> list[Checked]:
        """Return the results of a check, newest first."""
        executions = self.ask(_CHECKED, key={"path": [*key]}, check=check)["assetCheckExecutions"]
        return [
            Checked(execution["runId"], said["success"], said["severity"], numbers_of(said["metadataEntries"]))
            for execution in executions
            if (said := execution["evaluation"])
        ]

    def log(self, run_id: str) -> str:
        """Return the log of a run."""
        events = self.ask(_LOGS, run=run_id)["logsForRun"]["events"]
        lines = [event.get("message") or "" for event in events]
        return "\n".join(lines + [event["error"]["message"] for event in events if event.get("error")])


def numbers_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {entry["label"]: entry["intValue"] for entry in entries if "intValue" in entry}


def install_dagster() -> Path:
    """Return the folder of Dagster's environment."""
    return install_tool("Dagster", lock=LOCK, cost="1 minute, 200 MB")


@contextmanager
def running_dagster(home: Path, *, files: Sequence[Path], environ: Mapping[str, str]) -> Iterator[Dagster]:
    """Yield a running Dagster with these definition files. Its processes end with the block."""
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(_SETTINGS)
    places = [{"python_file": {"relative_path": str(path), "location_name": path.stem}} for path in files]
    (home / "workspace.yaml").write_text(json.dumps({"load_from": places}))
    port = find_free_port()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("DAGSTER", "HEADRACE_", "PYTHON"))}
    bin_folder = install_dagster() / "bin"
    path = f"{bin_folder}{os.pathsep}{plain['PATH']}"
    everything = {**plain, "PATH": path, "DAGSTER_HOME": str(home), **environ}
    workspace = ["-w", str(home / "workspace.yaml")]
    commands: dict[str, list[str | Path]] = {
        "daemon": [bin_folder / "dagster-daemon", "run", *workspace],
        "webserver": [bin_folder / "dagster-webserver", "-h", "127.0.0.1", "-p", str(port), *workspace],
    }
    with running_parts(commands, home=home, environ=everything):
        dagster = Dagster(f"http://127.0.0.1:{port}", home)
        wait_until(lambda: _answers(dagster), what=f"Dagster's web server; see {home}", seconds=120, pause=0.5)
        yield dagster


def _answers(dagster: Dagster) -> bool:
    try:
        return bool(dagster.ask("{ version }"))
    except OSError:
        return False


def _selector(location: str, what: str, name: str) -> dict[str, str]:
    return {"repositoryName": _REPOSITORY, "repositoryLocationName": location, what: name}
