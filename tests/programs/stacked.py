"""Land and build every pipeline's sample on the stack while its workers are killed, and compare the lake with `expected/`.

`make stack`. A worker is killed with its executor, as a machine that loses its power: once while a pipeline is landed, and
once while it is built on Spark's scans. It comes back before the next. Small builds, which run in the driver and need no
executor, then build the last tenth of the sample.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import psutil

from headrace.servers import embedded, kafka, object_store, postgres, rest_catalog, spark_cluster
from headrace.servers.embedded import Embedded
from headrace.servers.process import ServiceState, find_process
from headrace.servers.stack import stack_settings
from headrace.sessions.building import build, open_lake
from headrace.sessions.retry_policy import for_command
from headrace.sessions.shared_spark import spark_session
from headrace.settings import STACK, Settings, load_settings
from headrace.spec import Pipeline
from tests.build.paths import counted_paths, scanned_builds
from tests.support.lake import Lake, check_landed_once, check_verified
from tests.support.samples import NAMES, check_expected, found_lines, send_sample
from tests.support.stack_engines import check_engines_agree
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVERS = (
    *(kafka.BROKER, postgres.SERVER, object_store.SERVER, rest_catalog.SERVER),
    *(spark_cluster.SERVER, *spark_cluster.WORKERS),
)
LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 120.0


class StackLake(Lake):
    """A lake on the stack of its own home."""

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "HEADRACE_PROFILE": STACK}

    @property
    def home_settings(self) -> Settings:
        """The settings of the servers, also of servers that don't run."""
        return super().settings()

    def settings(self, **environ: str) -> Settings:
        return stack_settings(super().settings(**environ))


def start_server(server: Embedded, settings: Settings) -> ServiceState:
    """Start a server of the stack, Kafka without a password: the tests' own clients have no login for it."""
    chosen = replace(settings, services_secure=False) if server is kafka.BROKER else settings
    return embedded.start(server, chosen, detached=True, report=print)


@contextmanager
def running_stack(folder: Path, *, servers: Sequence[Embedded] = SERVERS) -> Iterator[StackLake]:
    """Yield a lake on the servers that pipelines need of a stack, or on a part of them; they end with the block."""
    settings = load_settings(flags={"profile": STACK, "home": str(folder / ".headrace")}, environ={}, folder=folder)
    with ExitStack() as stack:
        for server in servers:
            stack.callback(embedded.stop, server, settings, report=print)
            start_server(server, settings)
        broker = kafka.running_kafka(settings)
        assert broker is not None
        yield StackLake(folder, broker.bootstrap_servers, "stack-of-lineage")


class Killer:
    """Kills a worker as soon as its executor is busy."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.spark = spark
        self.settings = settings
        self.killed: list[str] = []

    @contextmanager
    def at_work(self, what: str) -> Iterator[None]:
        """Kill one worker while the block runs, and start it again after it; a block in which none was busy is an error."""
        ended = Event()
        victims: list[Embedded] = []
        thread = Thread(target=self._kill_one, args=(ended, victims), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert victims, f"no worker was busy while {what}"
        self.killed.append(f"{victims[0].title} while {what}")
        embedded.start(victims[0], self.settings, detached=True, report=lambda sentence: None)
        workers = len(spark_cluster.WORKERS)
        wait_until(lambda: self._executors() == workers, what="the worker's new executor", seconds=PATIENCE_SECONDS)

    def _kill_one(self, ended: Event, victims: list[Embedded]) -> None:
        while not ended.wait(LOOK_SECONDS):
            for server, process in self._workers():
                executors = process.children()
                if any(tasks and _listens(executors, port) for port, tasks in self._tasks().items()):
                    for one in (process, *process.children(recursive=True)):
                        one.send_signal(signal.SIGKILL)
                    victims.append(server)
                    return

    def _executors(self) -> int:
        """Return how many workers have an executor that the driver knows."""
        return sum(any(_listens(process.children(), port) for port in self._tasks()) for _, process in self._workers())

    def _tasks(self) -> dict[int, int]:
        """Return how many tasks run in each process of the application, by the port that it listens on."""
        infos = self.spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
        return {int(info.port()): int(info.numRunningTasks()) for info in infos}

    def _workers(self) -> Iterator[tuple[Embedded, psutil.Process]]:
        for server in spark_cluster.WORKERS:
            state = embedded.running(server, self.settings)
            process = find_process(state) if state else None
            if process is not None:
                yield server, process


def _listens(processes: Sequence[psutil.Process], port: int) -> bool:
    """Return whether one of the processes listens on a port; one that has just ended does not."""
    for process in processes:
        try:
            open_to = [
                connection.laddr.port
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
        except psutil.Error:
            continue
        if port in open_to:
            return True
    return False


def build_all(lake: StackLake, spark: SparkSession, pipeline: Pipeline) -> None:
    """Build all tables of a pipeline; raise the error of one that fails."""
    retry_policy = for_command(f"build of {pipeline.name}", report=print)
    for outcome in build(open_lake(lake.settings(), pipeline, spark), retry_policy=retry_policy):
        if outcome.error:
            raise outcome.error


def hold(folder: Path) -> None:
    """Raise an error if a sample has not become what is expected, or if something is missing or doubled."""
    with running_stack(folder) as lake, spark_session(lake.settings(), report=print) as spark:
        killer = Killer(spark, lake.settings())
        pipelines = [lake.pipeline(name) for name in NAMES]
        samples = {pipeline.name: send_sample(lake, pipeline, until=(0.9, 1.0)) for pipeline in pipelines}
        for pipeline in pipelines:
            next(samples[pipeline.name])
            with killer.at_work(f"{pipeline.name} was landed"):
                lake.land(spark, pipeline)
            print(f"{pipeline.name} is landed")
        check_verified(lake, *pipelines)  # before builds put refused rows of their own into the quarantine
        for pipeline in pipelines:
            if pipeline.tables:
                with killer.at_work(f"{pipeline.name} was built"), scanned_builds(), counted_paths() as taken:
                    build_all(lake, spark, pipeline)
                assert not taken["LocalInputs"], taken
            next(samples[pipeline.name])
            lake.land(spark, pipeline)
            if pipeline.tables:
                with counted_paths() as taken:
                    build_all(lake, spark, pipeline)
                assert taken["LocalInputs"], f"{pipeline.name}: no small build"
                print(f"{pipeline.name}: {taken['LocalInputs']} small builds and {taken['ScannedInputs']} on scans")
            check_expected(pipeline, found_lines(lake, pipeline))
            print(f"{pipeline.name}: {len(pipeline.streams)} streams and {len(pipeline.tables)} tables are as expected")
        check_landed_once(lake, *pipelines)
        check_engines_agree(lake, spark)
    for killed in killer.killed:
        print(f"killed: {killed}")
    print(f"{len(NAMES)} pipelines: 0 missing, 0 doubled")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        hold(Path(scratch))
