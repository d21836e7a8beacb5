"""Maintain tables while a pipeline runs: when landing keeps up, between builds, in bounded steps."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING

from headrace.background import in_background
from headrace.errors import LockedError, UnavailableError
from headrace.iceberg.catalog.outages import translate_outages
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.catalog.tables import open_catalog
from headrace.logs import MAINTENANCE, log_failure
from headrace.operations.maintain.maintaining import Maintained, MaintenanceContext, list_work, maintain_table, maintaining
from headrace.servers.embedded import Report
from headrace.settings import Settings
from headrace.spec.model.pipeline import Pipeline, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_LOCK_SECONDS = 5.0
_MB = 1024 * 1024


class MaintenanceGate:
    """Whether landing keeps up, and whose turn a table is: its build's, or a step of its maintenance."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turns: defaultdict[TableName, Lock] = defaultdict(Lock)
        self._behind: dict[str, int] = {}

    def turn(self, table: TableName) -> AbstractContextManager[object]:
        """Return a lock that a build of the table and a step of its maintenance hold."""
        with self._lock:
            return self._turns[table]

    def note_behind(self, pipeline: str, messages: int) -> None:
        """Note how many messages a pipeline has still to land."""
        self._behind[pipeline] = messages

    @property
    def is_open(self) -> bool:
        """Whether every pipeline has landed what there is."""
        return not any(tuple(self._behind.values()))


@contextmanager
def maintained(
    spark: SparkSession, settings: Settings, pipelines: Sequence[Pipeline], gate: MaintenanceGate, *, report: Report
) -> Iterator[None]:
    """Maintain the pipelines' tables while the block runs, except tables that another process maintains or erases from."""
    stop = Event()
    # Opened here and not in the thread, so that an outage of the catalog reaches the caller.
    context = MaintenanceContext(
        settings, open_catalog(settings), gate.turn, stop, most_bytes=settings.maintain_target_file_mb * _MB
    )
    with in_background(partial(_follow, spark, context, pipelines, gate, report), name="maintenance", end=stop.set):
        yield


def _follow(
    spark: SparkSession, context: MaintenanceContext, pipelines: Sequence[Pipeline], gate: MaintenanceGate, report: Report
) -> None:
    settings, stop = context.settings, context.stop
    session = open_spark_catalog(spark, settings)
    work = list_work(settings, pipelines)
    while not stop.wait(settings.maintain_every_minutes * 60):
        for owner, target in work:
            _wait_until_open(gate, stop)
            if stop.is_set():
                return
            try:
                with maintaining(settings, owner, wait_seconds=_LOCK_SECONDS), translate_outages():
                    done = maintain_table(context, session, owner, target)
            except LockedError:
                continue
            except UnavailableError as error:
                report(f"maintenance: {error.what}; the rest is left for the next time")
                break
            except Exception as error:  # landing and builds go on, and what is wrong with the table they find out themselves
                log_failure(_LOG, settings, MAINTENANCE, f"{target.name}: maintenance failed", error, table=str(target.name))
                report(_describe_failure(target.name, error))
                continue
            if done and done.changed:
                report(describe(done))


def describe(done: Maintained) -> str:
    """Return what maintenance did to a table, in a line."""
    before, after = done.before, done.after
    parts = [f"{before.files:,} files are {after.files:,}"] if before.files != after.files else []
    parts += [f"{before.snapshots:,} snapshots are {after.snapshots:,}"] if before.snapshots > after.snapshots else []
    parts += [f"{before.manifests:,} manifests are {after.manifests:,}"] if before.manifests > after.manifests else []
    parts += [f"{len(done.orphans.gone):,} files that nothing needs are deleted"] if done.orphans.gone else []
    return f"{done.name}  maintained: {', '.join(parts) or 'as it was'}  {done.seconds:.2f} s"


def _describe_failure(table: TableName, error: Exception) -> str:
    """Return why maintenance of a table failed, with the first line of its error."""
    first = str(error).partition("\n")[0]
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return f"{table}: maintenance failed with {what}\nRead the traceback with: headrace logs maintenance"


def _wait_until_open(gate: MaintenanceGate, stop: Event) -> None:
    while not gate.is_open and not stop.is_set():
        stop.wait(_LOOK_SECONDS)
